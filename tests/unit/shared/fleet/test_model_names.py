"""What names mean: a model's own first, then the oldest claim of an alias; what has no effect is told."""

from typing import Any

import pytest

from services.gateway.errors import ago
from shared.errors import StartError
from shared.fleet.model_names import Conflict, Names, check_aliases, resolve
from shared.wire.messages import VerifierCard
from tests.service.scripted import card


def verifier(model: str, *aliases: str, created: int = 1, **changes: Any) -> VerifierCard:
    return card(id=f"verifier-{model}-{created}", model=model, aliases=aliases, created=created, **changes)


def test_each_name_leads_to_its_model() -> None:
    names = resolve([verifier("big", "fast", "Smart"), verifier("small")])
    assert {name: names.find(name) for name in ("big", "fast", "Smart", "small")} == {
        "big": "big",
        "fast": "big",
        "Smart": "big",
        "small": "small",
    }
    assert names.of("big") == ("Smart", "fast")
    assert names.listing() == "big (also Smart, fast), small"


def test_names_compare_exactly_but_for_ollama_s_latest() -> None:
    names = resolve([verifier("big", "fast")])
    assert names.find("big:latest") == names.find("fast:latest") == "big"
    assert {names.find(name) for name in ("Big", "FAST", "fast ", "big:q4", ":latest")} == {None}


def test_a_model_that_is_called_latest_is_found_by_its_whole_name() -> None:
    names = resolve([verifier("m"), verifier("m:latest")])
    assert names.find("m:latest") == "m:latest"


def test_without_a_name_the_only_model_answers() -> None:
    names = resolve([verifier("big", "fast")])
    assert {names.find(name) for name in (None, "", "default", "default:latest")} == {"big"}
    assert resolve([verifier("big"), verifier("small")]).find(None) is None
    assert resolve([]).find(None) is None


def test_without_a_name_the_one_called_default_answers_and_comes_first() -> None:
    names = resolve([verifier("big"), verifier("small", "default")])
    assert names.find(None) == names.find("default") == "small"
    assert names.models == ("small", "big")
    assert resolve([verifier("default"), verifier("big", "default")]).find(None) == "default"


def test_a_model_s_own_name_beats_an_alias() -> None:
    names = resolve([verifier("big", "small", created=1), verifier("small", created=9)])
    assert names.find("small") == "small"
    assert names.conflicts == (Conflict("small", "big", "small"),)
    assert str(names.conflicts[0]) == "alias 'small' of big has no effect: that is a model's own name"


def test_of_two_models_with_one_alias_the_older_claim_counts_whatever_the_order() -> None:
    cards = [verifier("a", "fast", created=5), verifier("b", "fast", created=3), verifier("c", "fast", created=4)]
    for given in (cards, cards[::-1]):
        names = resolve(given)
        assert names.find("fast") == "b"
        assert names.conflicts == (Conflict("fast", "a", "b"), Conflict("fast", "c", "b"))
    # A second verifier of the first model does not make its claim younger, and an older one makes it older.
    assert resolve([*cards, verifier("b", "fast", created=9)]).find("fast") == "b"
    assert resolve([*cards, verifier("a", "fast", created=1)]).find("fast") == "a"


def test_two_verifiers_of_one_model_share_its_aliases() -> None:
    names = resolve([verifier("m", "x", created=1), verifier("m", "y", created=2)])
    assert names.of("m") == ("x", "y")
    assert not names.conflicts


def test_an_alias_that_is_its_model_s_name_says_nothing() -> None:
    assert resolve([verifier("m", "m")]) == Names(models=("m",))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("qwen3-8", "Qwen3-8B"),
        ("QWEN3-8B", "Qwen3-8B"),
        ("Qwen3-8B:q4", "Qwen3-8B"),
        ("fats", "fast"),
        ("gpt-9", None),
        ("x" * 100_000, None),
    ],
)
def test_the_nearest_name_is_found_if_one_is_near(asked: str, meant: str | None) -> None:
    assert resolve([verifier("Qwen3-8B", "fast"), verifier("smol")]).nearest(asked) == meant


@pytest.mark.parametrize("alias", ["", "two words", "a=b", "a\nb", "x" * 257])
def test_a_name_that_no_client_could_ask_for_is_refused(alias: str) -> None:
    with pytest.raises(StartError, match="--alias"):
        check_aliases(["fine", alias])


def test_aliases_are_bounded_and_each_counts_once() -> None:
    assert check_aliases(["a", "b/c:d", "a"]) == ("a", "b/c:d")
    with pytest.raises(StartError, match="at most 64"):
        check_aliases(map(str, range(65)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 seconds"), (1.4, "1 second"), (119, "119 seconds"), (120, "2 minutes"), (7300, "2 hours")],
)
def test_spans_of_time_are_told_in_a_unit_that_fits(seconds: float, words: str) -> None:
    assert ago(seconds) == words
