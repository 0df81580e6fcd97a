"""The suffix index finds what a search of the whole list finds, however the list came about."""

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.suffix import LENGTHS, LONGEST, LOOKS, Occurrence, SuffixIndex
from tests.examples import few

small = st.lists(st.integers(0, 3), max_size=120)


def grown(tokens: Sequence[int], seed: int) -> SuffixIndex:
    """An index that was extended by pieces of random sizes."""
    source = random.Random(seed)
    index = SuffixIndex()
    start = 0
    while start < len(tokens):
        size = source.choice((1, 1, 2, 5, 30))
        index.extend(tokens[start : start + size])
        start += size
    return index


def searched(tokens: Sequence[int], suffix: Sequence[int]) -> list[Occurrence]:
    """Every place where at least `LENGTHS[0]` last tokens of `suffix` are followed by one, the latest first."""
    found = []
    for end in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < min(end, len(suffix), LONGEST) and tokens[end - 1 - length] == suffix[-1 - length]:
            length += 1
        if length >= LENGTHS[0]:
            found.append(Occurrence(end, length))
    return found


@settings(max_examples=few(300))
@given(small, small, st.integers(0, 99))
def test_it_finds_the_places_that_a_search_finds(tokens: list[int], suffix: list[int], seed: int) -> None:
    index = grown(tokens, seed)
    found = index.find(suffix, 8)
    places = searched(tokens, suffix)
    assert set(found) <= set(places)
    assert [place.end for place in found] == sorted((place.end for place in found), reverse=True)
    if len(places) <= LOOKS:  # nothing can hide behind later places
        longest = max((place.length for place in places), default=0)
        least = max((length for length in LENGTHS if length <= longest), default=1)
        assert found == [place for place in places if place.length >= least][:8]


@settings(max_examples=few(100))
@given(small, st.integers(0, 99))
def test_it_does_not_matter_how_the_tokens_came(tokens: list[int], seed: int) -> None:
    once = SuffixIndex()
    once.extend(tokens)
    index = grown(tokens, seed)
    assert index.tokens == once.tokens
    for end in range(len(tokens)):
        suffix = tokens[:end]
        if len(searched(tokens, suffix)) <= LOOKS:
            assert index.find(suffix, 8) == once.find(suffix, 8)


def test_a_long_match_is_found_behind_many_short_ones() -> None:
    line = list(range(100, 120))
    index = SuffixIndex()
    index.extend([*line, 7, *[token for other in range(200) for token in (1000 + other, 118, 119, 8)]])
    assert index.find(line, 8) == [Occurrence(20, 20)]
    assert index.token(20) == 7


def test_old_tokens_go_and_positions_stay() -> None:
    index = SuffixIndex(limit=200)
    sizes = []
    for start in range(0, 2000, 25):
        index.extend(range(start, start + 25))
        sizes.append(len(index.tokens))
        assert index.find([start + 20, start + 21, start + 22], 8) == [Occurrence(start + 23, 3)]
        assert index.token(start + 23) == start + 23
    assert max(sizes) <= 200
    assert min(sizes[8:]) >= 100
    assert index.end == 2000
    assert index.token(5) == -1
    assert not index.following(5, 3)
    assert index.find([4, 5, 6, 7], 8) == []


def test_more_than_the_limit_at_once_keeps_the_end() -> None:
    index = SuffixIndex(limit=100)
    index.extend(range(1000))
    assert index.end == 1000
    assert index.find([997, 998], 8) == [Occurrence(999, 2)]


def test_a_token_takes_some_fifty_bytes() -> None:
    index = SuffixIndex()
    for token in range(5000):
        index.extend([token])
    tables = [index.tokens, *(table for chains in index._chains for table in (chains.latest, chains.previous))]
    assert sum(len(table) * table.itemsize for table in tables) <= 60 * 5000
