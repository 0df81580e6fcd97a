"""Copies go on as long as they deserve, survive edits, and guesses leave no trace."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.copier import Copier
from services.drafter.store import Store
from services.drafter.suffix import SuffixIndex
from services.drafter.votes import CopiedChain
from tests.examples import few

TEXT = list(range(100, 600))
OTHER = list(range(1000, 1100))


def after(*, match: int, lines: list[int] = TEXT) -> CopiedChain:
    """What is copied behind a match of `match` tokens."""
    return Copier([*lines, 1, *lines[:match]]).copies(400)[0]


def path(copy: CopiedChain) -> float:
    chance = 1.0
    for score in copy.scores:
        chance *= score
    return chance


def test_a_longer_match_is_copied_further_and_with_more_confidence() -> None:
    short, middle, long = (after(match=match) for match in (3, 10, 40))
    assert len(short.tokens) < len(middle.tokens) < len(long.tokens)
    assert short.scores[0] < middle.scores[0] < long.scores[0]
    assert middle.tokens == tuple(TEXT[10 : 10 + len(middle.tokens)])
    assert path(short) >= 0.1


def test_places_that_agree_make_a_guess_likelier_and_those_that_differ_less() -> None:
    chances = [Copier([1, 2, 3, last, 9, 8, 1, 2, 3, 4, 7, 6, 1, 2, 3]).copies(4)[0].scores[0] for last in (4, 5)]
    alone = Copier([1, 2, 3, 4, 7, 6, 1, 2, 3]).copies(4)[0].scores[0]
    assert chances[1] < alone < chances[0]


@pytest.mark.parametrize(
    ("written", "following"),
    [
        (TEXT[100:102], TEXT[102:105]),  # deleted: 50 to 99
        (TEXT[60:62], TEXT[62:65]),  # deleted: 50 to 59
        ([7], TEXT[51:54]),  # one replaced
        ([7, 8, 9, TEXT[53], TEXT[54]], TEXT[55:58]),  # three replaced
        ([7, 8, 9, TEXT[50]], TEXT[51:54]),  # three inserted
        ([*range(10, 40), *TEXT[50:52]], TEXT[52:55]),  # thirty inserted
    ],
)
def test_a_copy_goes_on_behind_an_edit(written: list[int], following: list[int]) -> None:
    copier = Copier([*TEXT, 1, *TEXT[:40]])
    copier.copies(20)
    copier.commit([*TEXT[40:50], *written])
    assert copier.copies(20)[0].tokens[:3] == tuple(following)


def test_a_near_place_is_preferred_to_a_far_one_that_matches_longer() -> None:
    far = [7, TEXT[53], TEXT[54], 2000, 2001, 2002]
    copier = Copier([*far, *TEXT, 1, *TEXT[:40]])
    copier.copies(20)
    copier.commit([*TEXT[40:50], 7, *TEXT[53:55]])  # three tokens match far away, two near the edit
    assert copier.copies(20)[0].tokens[0] == TEXT[55]


def test_after_two_edits_it_still_knows_where_it_was() -> None:
    copier = Copier([*TEXT, 1, *TEXT[:40]])
    for start in range(40, 200, 20):
        copier.copies(20)
        copier.commit([*TEXT[start : start + 19], 7])
    assert copier.copies(20)[0].tokens[:5] == tuple(TEXT[200:205])


def test_a_copy_that_reaches_its_beginning_repeats() -> None:
    assert Copier([5, 6, 7] * 4).copies(10)[0].tokens == (5, 6, 7, 5, 6, 7, 5, 6, 7, 5)


def test_guesses_are_matched_but_leave_no_trace() -> None:
    copier = Copier([*TEXT, 1, 2])
    assert copier.copies(5) == []
    assert copier.copies(5, guesses=TEXT[50:54])[0].tokens == tuple(TEXT[54:59])
    assert copier.copies(5) == []
    assert copier.copies(5, guesses=[3, 4, 5]) == []
    copier.commit(TEXT[80:84])
    assert copier.copies(5)[0].tokens == tuple(TEXT[84:89])


def test_a_copy_is_resumed_for_one_who_always_has_guesses() -> None:
    copier = Copier([*TEXT, 1, *TEXT[:40]])
    copier.copies(20, guesses=[5])
    copier.commit(TEXT[40:50])
    assert copier.copies(20, guesses=[7])[0].tokens[:3] == tuple(TEXT[51:54])


def test_guesses_move_the_copy_that_is_going_on() -> None:
    copier = Copier([*TEXT, 1, *TEXT[:40]])
    copier.copies(20)
    wrong = copier.copies(20, guesses=[*TEXT[40:45], 7])  # as if a token was replaced
    assert wrong[0].tokens[:3] == tuple(TEXT[46:49])
    copier.commit(TEXT[40:50])
    assert copier.copies(20)[0].tokens[:3] == tuple(TEXT[50:53])


def test_what_others_wrote_is_copied_too() -> None:
    others = SuffixIndex()
    copier = Copier([1, 2, 3, *OTHER[:5]], others)
    assert copier.copies(5) == []
    others.extend(OTHER)  # by a request that ends while ours runs
    assert copier.copies(5)[0].tokens == tuple(OTHER[5:10])


def test_a_copy_of_what_was_forgotten_ends() -> None:
    others = SuffixIndex(limit=200)
    others.extend(OTHER)
    copier = Copier([1, *OTHER[:10]], others)
    assert copier.copies(5)[0].tokens == tuple(OTHER[10:15])
    others.extend(range(5000, 5190))
    assert copier.copies(5) == []
    copier.commit(OTHER[10:12])
    assert copier.copies(5) == []


@settings(max_examples=few(100))
@given(st.integers(0, 10_000))
def test_whatever_is_written_copies_are_well_formed(seed: int) -> None:
    source = random.Random(seed)
    others = SuffixIndex(limit=128)
    copier = Copier([source.randrange(6) for _ in range(source.randrange(60))], others)
    for _ in range(12):
        others.extend([source.randrange(6) for _ in range(source.randrange(40))])
        copier.commit([source.randrange(6) for _ in range(source.randrange(6))])
        guesses = [source.randrange(6) for _ in range(source.randrange(4))]
        plain = copier.copies(12)
        copies = copier.copies(12, guesses)
        assert copier.copies(12) == plain
        for copy in copies:
            assert 0 < len(copy.tokens) == len(copy.scores) <= 12
            assert all(0.0 < score < 1.0 for score in copy.scores)
            assert copy.depth < len(copies[0].tokens)
        assert copies == copier.copies(12, guesses)  # asking changes nothing
        starts = [(copy.depth, copy.tokens[0]) for copy in copies]
        assert len(set(starts)) == len(starts)
        assert all(copy.tokens[0] != copies[0].tokens[copy.depth] for copy in copies[1:])


# ---------------------------------------------------------------- the store


@pytest.mark.parametrize("names", [(("a", ""), ("b", ""), ("c", "")), (("m", "one"), ("m", "two"), ("m", "three"))])
def test_the_store_keeps_models_and_callers_apart_and_forgets_those_not_in_use(
    names: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.drafter.store._INDEXES", 2)
    store = Store()
    a, b, c = names
    store.add(*a, [1, 2], [3, 4])
    store.add(*b, [1, 2], [5, 6])
    assert (store.index(*a).tokens.tolist(), store.index(*b).tokens.tolist()) == ([1, 2, 3, 4], [1, 2, 5, 6])
    store.index(*a)
    store.add(*c, [1], [2])
    assert store.index(*a).end == 4
    assert store.index(*b).end == 0


def test_the_store_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.drafter.store._TOKENS", 400)
    store = Store()
    for start in range(0, 5000, 50):
        store.add("m", "", range(start, start + 25), range(start + 25, start + 50))
        assert len(store.index("m", "").tokens) <= 400
    assert store.index("m", "").find([4990, 4991], 8)
    assert not store.index("m", "").find([10, 11], 8)


def test_a_conversation_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.drafter.store._PROMPT_TAIL", 100)
    store = Store()
    said = list(range(300))
    for _ in range(10):
        answer = list(range(len(said), len(said) + 30))
        store.add("m", "", said, answer)
        said += [*answer, *range(len(said) + 30, len(said) + 50)]
    assert len(store.index("m", "").tokens) <= 100 + 30 + 9 * (16 + 20 + 30)
    assert store.index("m", "").following(100, 30).tolist() == list(range(300, 330))
