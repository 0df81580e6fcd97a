"""The bench for lookup: its texts are what they say, and its rounds count what a verifier would."""

import re
import zlib
from random import Random

import pytest

from bench.cases import Case, cases
from bench.copying import PromptLookup, Tally, Verifier, measure
from bench.edits import edited, kept_share
from services.drafter.lookup_proposer import LookupProposer


def tokenize(text: str) -> list[int]:
    """A token per word, space or sign; enough of a vocabulary for texts to repeat as they do in a real one."""
    return [zlib.crc32(word.encode()) & 0xFFFF for word in re.findall(r"\w+|\s+|.", text)]


def text(lines: int = 120) -> str:
    source = Random(3)
    words = ("value", "token", "offset", "count", "prompt", "answer", "window")
    return "".join(f"{source.choice(words)}_{source.choice(words)} = {source.randrange(90)}\n" for _ in range(lines))


@pytest.mark.parametrize("kept", [0.9, 0.7])
def test_edits_keep_the_share_of_lines_that_was_asked_for(kept: float) -> None:
    before = text()
    after = edited(before, kept, Random(1), ["an = other\nfile = 1\n" * 20])
    assert kept - 0.15 <= kept_share(before, after) <= kept
    assert after == edited(before, kept, Random(1), ["an = other\nfile = 1\n" * 20])


def test_the_same_files_make_the_same_requests_of_every_kind() -> None:
    work = cases(tokenize, files=2)
    assert work == cases(tokenize, files=2)
    assert list(dict.fromkeys(case.workload for case in work)) == [
        "edit 90%",
        "edit 70%",
        "agent",
        "unseen file",
        "prose",
    ]
    assert all(case.prompt and case.answer for case in work)


def test_every_round_commits_what_was_accepted_and_one_more() -> None:
    line = tuple(range(100, 140))
    tally = Verifier(LookupProposer(), row_cost=0.0).answer(Case("copy", (*line, 1, *line[:8]), line[8:]), "r")
    assert tally.accepted + tally.rounds == tally.tokens == 32
    assert tally.accepted <= tally.drafted
    assert tally.rounds == 1
    nothing = Verifier(LookupProposer()).answer(Case("new", (1, 2, 3), tuple(range(60, 110))), "r")
    assert (nothing.rounds, nothing.drafted, nothing.cost) == (50, 0, 50.0)


def test_rows_that_cost_more_are_fewer() -> None:
    work = cases(tokenize, files=1)[:2]

    def drafted(cost: float) -> int:
        return sum(tally.drafted for tally in measure(LookupProposer(), work, cost).values())

    assert drafted(0.1) > drafted(1.0)


@pytest.mark.slow
def test_lookup_is_worth_more_than_plain_prompt_lookup() -> None:
    work = cases(tokenize, files=2)
    lookup, plain = measure(LookupProposer(), work), measure(PromptLookup(), work)

    def speed_up(tally: Tally) -> float:
        return tally.tokens / tally.cost

    for workload in lookup:
        assert speed_up(lookup[workload]) > speed_up(plain[workload])
    assert speed_up(lookup["unseen file"]) > 4  # it was all said in another request
