"""Whatever a fleet says of why it is not speculating is explained under the symptoms."""

import ast
from collections.abc import Iterator
from dataclasses import fields

import pytest

from reference.source import ROOT, constants
from services.verifier.generation import Generation

TEXT = (ROOT / "docs/troubleshooting.md").read_text()


def reasons() -> Iterator[str]:
    """Every sentence that may stand in a request's `reason`."""
    for name, value in constants(ast.parse((ROOT / "services/verifier/round.py").read_text())).items():
        if name.isupper() and isinstance(value, str):
            yield value
    yield next(str(field.default) for field in fields(Generation) if field.name == "reason")


REASONS = list(reasons())


def test_reasons_are_found() -> None:
    assert len(REASONS) > 6


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_explained(reason: str) -> None:
    assert f"| `{reason}` |" in TEXT


def verdicts() -> Iterator[str]:
    """What `shared.fleet.verdict` may say is wrong, as far as it is written out there."""
    for node in ast.walk(ast.parse((ROOT / "shared/fleet/verdict.py").read_text())):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


@pytest.mark.parametrize("sentence", list(verdicts()))
def test_a_verdict_is_explained(sentence: str) -> None:
    assert f"| `{sentence}` |" in TEXT


@pytest.mark.parametrize(
    "sentence",
    ["its vocabulary differs from the target's", "a recurrent or hybrid model cannot take back guesses"],
)
def test_a_refusal_of_a_drafter_is_explained(sentence: str) -> None:
    assert sentence in TEXT
    sources = [
        path.read_text() for folder in ("verifier", "drafter") for path in (ROOT / "services" / folder).glob("*.py")
    ]
    assert any(sentence in source for source in sources)
