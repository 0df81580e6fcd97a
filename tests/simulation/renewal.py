"""One chain drafted ahead, as a renewal process: what the best fixed rule of waiting reaches. Knows no code of ours.

The drafter draws a token every `step` and a message takes `hop`. From its last start its guesses 1 to L are right and
guess L + 1 is wrong, L geometric; the verifier learns that from its own draw, and the drafter starts anew a hop later,
when the step that it is in is over. There is no closed formula, so the rule is evaluated run by run and searched over.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

WIDEST = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """Drafts to wait for after a miss and within a run (0: never wait), and the most that are verified at once."""

    first: int
    more: int
    most: int


def run_lengths(right: Sequence[bool]) -> list[int]:
    """Right guesses before each miss."""
    lengths, length = [], 0
    for hit in right:
        if hit:
            length += 1
        else:
            lengths.append(length)
            length = 0
    return lengths


def rate(rule: Rule, cost: Callable[[int], float], step: float, hop: float, lengths: Sequence[int]) -> float:
    """Tokens per unit of time under `rule`."""
    now = start = 0.0
    tokens = 0
    for length in lengths:
        used = 0  # guesses of this run that the answer has passed
        while used <= length:
            need = rule.more if used else rule.first
            now = max(now, start + (used + need) * step + hop) if need else now
            ready = math.floor((now - hop - start) / step + 1e-9) - used
            width = max(0, min(ready, rule.most))
            now += cost(1 + width)
            gained = min(width, length - used) + 1
            used += gained
            tokens += gained
        heard = now + hop - start
        start += math.ceil(heard / step - 1e-9) * step
    return tokens / now


def best_rate(cost: Callable[[int], float], step: float, hop: float, lengths: Sequence[int]) -> tuple[float, Rule]:
    """The highest rate over all rules, one number of the rule improved at a time."""
    best, found = 0.0, Rule(0, 0, WIDEST)
    for first in (0, 5):
        rule, reached, before = Rule(first, 0, WIDEST), 0.0, -1.0
        while reached > before:
            before = reached
            for name, values in (("most", range(WIDEST + 1)), ("first", range(13)), ("more", range(13))):
                tried = [replace(rule, **{name: value}) for value in values]
                rates = [rate(one, cost, step, hop, lengths) for one in tried]
                reached = max(rates)
                rule = tried[rates.index(reached)]
        if reached > best:
            best, found = reached, rule
    return best, found
