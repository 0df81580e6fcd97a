"""Whatever a fleet says of why it is not speculating is explained under the symptoms."""

import ast
from collections.abc import Iterator

import pytest

from reference.source import ROOT, constants

TEXT = (ROOT / "docs/troubleshooting.md").read_text()


def reasons() -> Iterator[str]:
    """Every sentence that may stand in a request's `reason`, or say why speculation does not pay."""
    for name, value in constants(ast.parse((ROOT / "shared/law/payoff.py").read_text())).items():
        if name.isupper() and isinstance(value, str):
            yield value


REASONS = list(reasons())


def test_reasons_are_found() -> None:
    assert len(REASONS) > 9


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_explained(reason: str) -> None:
    assert f"| `{reason}` |" in TEXT


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
