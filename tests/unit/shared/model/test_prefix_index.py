"""The index answers as a plain list of prefixes would, and never keeps more bytes than its budget."""

import random

from shared.model.prefix_index import PrefixIndex, common_prefix


def test_it_finds_what_a_plain_search_finds_and_stays_within_its_budget() -> None:
    source = random.Random(1)
    index, naive = PrefixIndex(60), list[list[int]]()  # naive: the least recently used first, a byte a token
    for _ in range(2000):
        tokens = [source.randrange(2) for _ in range(source.randrange(1, 12))]
        best = max((common_prefix(one, tokens) for one in naive), default=0)
        found = index.longest(tokens)
        assert (found[1] if found else 0) == best
        if covering := [one for one in naive if one[: len(tokens)] == tokens]:
            assert index.covers(tokens)
            used = min(covering, key=len)
            naive = [one for one in naive if one != used] + [used]
            continue
        assert not index.covers(tokens)
        _, replaced, evicted = index.add(tokens, len(tokens))
        assert sorted(one.tokens.tolist() for one in replaced) == sorted(
            one for one in naive if tokens[: len(one)] == one
        )
        naive = [one for one in naive if tokens[: len(one)] != one]
        gone = []
        while sum(map(len, naive)) + len(tokens) > 60:
            gone.append(naive.pop(0))
        assert [one.tokens.tolist() for one in evicted] == gone
        naive.append(tokens)
        assert (index.size, len(index)) == (sum(map(len, naive)), len(naive))


def test_what_was_used_last_stays() -> None:
    index = PrefixIndex(20)
    first, *_ = index.add([1, 2], 10)
    second, *_ = index.add([3, 4], 10)
    index.touch(first.key)
    _, _, evicted = index.add([5, 6], 10)
    assert evicted == (second,)


def test_common_prefix_ends_at_the_first_difference() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([1, 2], [1, 2, 4]) == 2
    assert common_prefix([], [1]) == 0
