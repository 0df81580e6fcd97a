"""Places to copy from vote on what comes next: the chain that most of them continue with, and an alternative. Pure.

A guess's confidence estimates the probability that it is right if all before it are: its votes less a discount, divided
by all votes (absolute discounting, Ney, Essen and Kneser 1994). The discount is a half if the places disagree. If they
agree, it falls with the length of the match, so that long matches give long copies.
"""

from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.drafter.suffix import SuffixIndex

_CONTESTED: Final = 0.5  # votes that a guess loses where places disagree
_CONTESTED_OTHERS: Final = 0.75  # the same for the first token, for places in other requests' text
_FAINTEST: Final = 0.1  # lowest path probability of a guess


@dataclass(frozen=True, slots=True)
class CopiedChain:
    """Guesses with their confidences, which follow the context and the first `depth` tokens of the first chain."""

    depth: int
    tokens: tuple[int, ...]
    scores: tuple[float, ...]


class Voter(NamedTuple):
    """A place to copy from: the tokens that follow there, and how many tokens before it agree."""

    source: SuffixIndex
    at: int
    run: int
    match: float  # the run and other evidence for the place, in tokens
    tokens: "array[int]"


class Hypothesis(NamedTuple):
    """Voters that agree on the first token, the strongest first, and the probability that it is right."""

    chance: float
    voters: list[Voter]


def first(group: list[Voter], votes: int, others: bool = False) -> float:
    """Probability of the first token of `group` among all `votes`; `others`: the places are in other requests' text."""
    contested, falling = (_CONTESTED_OTHERS, 3.0) if others else (_CONTESTED, 2.0)
    lost = contested if len(group) < votes else min(contested, falling / (group[0].match + 1.0))
    return (len(group) - lost) / votes


def later(group: list[Voter], votes: int, position: int) -> float:
    """Probability of the token of `group` at `position` among all `votes`, if all tokens before are right."""
    lost = _CONTESTED if len(group) < votes else 1.0 / (group[0].match + position + 1.0)
    return (len(group) - lost) / votes


def grouped(voters: list[Voter], position: int) -> list[list[Voter]]:
    """Voters by their token at `position`, the largest group first, then the longest match, then the latest."""
    groups: dict[int, list[Voter]] = {}
    for voter in voters:
        groups.setdefault(voter.tokens[position], []).append(voter)
    for group in groups.values():
        group.sort(key=lambda voter: -voter.match)
    return sorted(groups.values(), key=lambda group: (-len(group), -group[0].match))


def _agreed(voters: list[Voter], start: int) -> int:
    """The first position from `start` on where the voters differ or one of them ends."""
    leading = voters[0].tokens
    end = len(leading)
    for voter in voters[1:]:
        other = voter.tokens
        if other[start:end] != leading[start:end]:
            end = min(end, len(other))
            end = next((index for index in range(start, end) if other[index] != leading[index]), end)
    return end


def chains(best: Hypothesis, other: Hypothesis | None) -> list[CopiedChain]:
    """The chain of `best`, then alternatives: `other`, and the second choice where the voters first disagree."""
    tokens, scores, parting = _vote(best, 0)
    hypotheses = [] if other is None else [(0, other)]
    if parting is not None and parting[0] < len(tokens):
        hypotheses.append(parting)
    copies = [CopiedChain(0, tuple(tokens), tuple(scores))]
    for depth, hypothesis in hypotheses:
        tokens, scores, _ = _vote(hypothesis, depth)
        copies.append(CopiedChain(depth, tuple(tokens), tuple(scores)))
    return copies


def _vote(hypothesis: Hypothesis, start: int) -> tuple[list[int], list[float], tuple[int, Hypothesis] | None]:
    """The chain from `start` on that most voters continue with while it is likely, and where they first disagree."""
    chance, voters = hypothesis
    tokens: list[int] = []
    scores: list[float] = []
    parting: tuple[int, Hypothesis] | None = None
    path = 1.0
    position = start
    while True:
        agreed = _agreed(voters, position)
        match, votes = voters[0].match, len(voters)
        for index in range(position, agreed):
            path *= chance
            if path < _FAINTEST and scores:
                return tokens + voters[0].tokens[position:index].tolist(), scores, parting
            scores.append(chance)
            chance = 1.0 - 1.0 / ((match + index + 2.0) * votes)
        tokens += voters[0].tokens[position:agreed]
        position = agreed
        groups = grouped([voter for voter in voters if len(voter.tokens) > position], position)
        if not groups:
            return tokens, scores, parting
        votes = sum(map(len, groups))
        if parting is None and len(groups) > 1:
            parting = position, Hypothesis(later(groups[1], votes, position), groups[1])
        voters, chance = groups[0], later(groups[0], votes, position)
