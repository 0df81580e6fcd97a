"""Which aliases each target of `up` gets."""

from pathlib import Path

import pytest

from services.launcher.fleet.aliases import name_targets
from shared.errors import StartError

BIG, SMALL = Path("models/big-Q4.gguf"), Path("models/small.gguf")
SPECS = ["hf:user/big:Q4", "models/small.gguf"]


def test_one_model_takes_plain_aliases_and_needs_no_default() -> None:
    assert name_targets(["default"], [SMALL], ["fast", "gpt=small", "x=default"]) == [("fast", "gpt", "x")]


def test_of_several_models_the_first_is_the_default_one() -> None:
    assert name_targets(SPECS, [BIG, SMALL], []) == [("default",), ()]
    assert name_targets(SPECS, [BIG, SMALL], ["default=small"]) == [(), ("default",)]


def test_a_model_is_named_as_it_was_given_or_as_it_is_called() -> None:
    aliases = ["a=hf:user/big:Q4", "b=big-Q4", "c=models/small.gguf", "d=small"]
    assert name_targets(SPECS, [BIG, SMALL], aliases) == [("a", "b", "default"), ("c", "d")]


def test_two_verifiers_of_one_model_have_the_same_names() -> None:
    assert name_targets(["x", "x"], [BIG, BIG], ["fast"]) == [("fast",), ("fast",)]
    assert name_targets(["x", "x", "y"], [BIG, BIG, SMALL], []) == [("default",), ("default",), ()]


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        (["fast"], "--alias fast: write fast=MODEL, where MODEL is one of big-Q4, small"),
        (["fast=other"], "--alias fast=other: MODEL must be one of big-Q4, small"),
        (["small=big-Q4"], "--alias small=big-Q4: small is the name of another target"),
        (["x=small", "x=big-Q4"], "--alias x=big-Q4: x is an alias of small already"),
        (["=small"], "--alias : up to 256 characters"),
    ],
)
def test_an_alias_that_cannot_work_is_refused(aliases: list[str], message: str) -> None:
    with pytest.raises(StartError) as caught:
        name_targets(SPECS, [BIG, SMALL], aliases)
    assert str(caught.value).startswith(message)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="has the same name as"):
        name_targets(["a/m.gguf", "b/m.gguf"], [tmp_path / "a/m.gguf", tmp_path / "b/m.gguf"], [])
