from hypothesis import given
from hypothesis import strategies as st

from shared.law import prefix

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=50)


@given(tokens, tokens)
def test_hashing_in_pieces_gives_the_hash_of_the_whole(one: list[int], other: list[int]) -> None:
    whole = prefix.extend_all(prefix.EMPTY, one + other)
    assert prefix.extend_all(prefix.extend_all(prefix.EMPTY, one), other) == whole
    assert 0 <= whole < 2**64


@given(st.lists(tokens, min_size=2, max_size=30, unique_by=tuple))
def test_different_prefixes_have_different_hashes(many: list[list[int]]) -> None:
    assert len({prefix.extend_all(prefix.EMPTY, one) for one in many}) == len(many)


def test_token_zero_changes_the_hash() -> None:
    assert prefix.extend(prefix.EMPTY, 0) != prefix.EMPTY
