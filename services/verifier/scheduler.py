"""Chooses the rows of the next decode: those whose expected tokens are worth more than their time. Pure.

One rule covers adaptive length, tree shape, fair sharing, waiting and switching off: take rows in order of path
probability while E - rate * (wait + v(rows)) rises. E is the expected number of tokens, with one certain token per
request, v is the measured decode time, and `rate` is the recent speed in tokens per millisecond. Using the recent rate
instead of the best rate of this round alone maximises tokens per time over all rounds (Dinkelbach 1967): after a
refusal it keeps a poor round short.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from operator import sub

from shared.law.payoff import MAX_WIDTH, perfect_drafts_pay


def most_outputs(requests: int) -> int:
    """The most rows of a decode whose logits are read: one token per request and its drafts.

    A prompt needs only its last row's logits, and a request that reads its prompt has no drafts.
    """
    return requests * (1 + MAX_WIDTH)


@dataclass(frozen=True, slots=True)
class ExpectedDrafts:
    """Drafts that have not come yet: `batch` of them in `first_ms`, then one every `step_ms`.

    Each is accepted with probability `acceptance`. They count as lost when they are late by `grace_ms`.
    """

    first_ms: float
    step_ms: float
    acceptance: float
    batch: int = 1
    grace_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RowCandidate:
    """A request that decodes. `ready` has for each draft, best first, the chance that the walk accepts it.

    `arrival` are drafts that will follow the end of the likeliest path, which the walk reaches with probability `tip`.
    `limit` bounds its drafts: remaining tokens, room in the context, or 0 if speculation is off.
    """

    ready: tuple[float, ...]
    limit: int
    arrival: ExpectedDrafts | None = None
    tip: float = 1.0


@dataclass(frozen=True, slots=True)
class RowAllocation:
    """Draft rows per request, in the order of the candidates, after waiting `wait_ms` for arriving drafts."""

    widths: tuple[int, ...]
    wait_ms: float
    tokens: float  # expected
    ms: float  # expected, the wait included


def choose(
    candidates: Sequence[RowCandidate],
    cost: Callable[[int], float],
    other_rows: int,
    equal_widths: bool,
    max_rows: int,
    may_wait: bool,
    rate: float = 0.0,
) -> RowAllocation:
    """The widths of one decode that also has `other_rows` prefill rows.

    A millisecond is worth `rate` tokens, or what plain decoding gives if that is more. With `equal_widths` (streams
    layout) every request is padded to the widest, so each is charged for the widest.
    """
    count = len(candidates)
    if not count:
        return RowAllocation((), 0.0, 0.0, 0.0)
    plain_ms = cost(count + other_rows)
    plain = RowAllocation((0,) * count, 0.0, float(count), plain_ms)
    most = min(sum(min(candidate.limit, MAX_WIDTH) for candidate in candidates), max_rows - count - other_rows)
    if not perfect_drafts_pay(cost, most, 1.0, count, other_rows):
        return plain
    rate = max(rate, count / plain_ms)
    rows = count if equal_widths else 1  # of a step: one more draft for everybody, or one more draft
    waits = _waits(candidates, plain_ms if may_wait else 0.0)
    # The longer the wait, the more drafts are there.
    steps = len(_gains(_chains(candidates, waits[-1]), equal_widths))
    steps = min(steps, (max_rows - count - other_rows) // rows)
    prices = [rate * cost(count + other_rows + step * rows) for step in range(steps + 1)]  # in tokens

    def value_after(wait_ms: float) -> float:
        """The value in tokens of the best decode with the drafts that are there after the wait, without the wait."""
        gains = _gains(_chains(candidates, wait_ms), equal_widths)
        value: float = max(map(sub, accumulate(gains, initial=float(count)), prices))
        return value

    most_value = value_after(waits[-1])
    best_value, best_wait_ms = count - prices[0], None
    for wait_ms in waits:
        if most_value - rate * wait_ms <= best_value:
            break
        value = (most_value if wait_ms == waits[-1] else value_after(wait_ms)) - rate * wait_ms
        if value > best_value + 1e-9:
            best_value, best_wait_ms = value, wait_ms
    if best_wait_ms is None:
        return plain
    chains = _chains(candidates, best_wait_ms)
    tokens = list(accumulate(_gains(chains, equal_widths), initial=float(count)))
    values = list(map(sub, tokens, prices))
    step = values.index(max(values))
    ms = best_wait_ms + cost(count + other_rows + step * rows)
    return RowAllocation(_widths(chains, step, equal_widths), best_wait_ms, tokens[step], ms)


def likeliest(candidates: Sequence[RowCandidate], steps: int, equal_widths: bool) -> tuple[int, ...]:
    """The widths of a decode of the drafts that are there, for so many steps: each one more draft, or one for each."""
    return _widths(_chains(candidates, 0.0), max(0, steps), equal_widths)


def expected(candidates: Sequence[RowCandidate], widths: Sequence[int]) -> float:
    """The tokens that a decode of these widths gives."""
    return sum(1.0 + sum(one.ready[:width]) for one, width in zip(candidates, widths, strict=True))


def worth_awaiting(
    arrival: ExpectedDrafts, limit: int, cost: Callable[[int], float], other_rows: int, max_rows: int, rate: float
) -> int:
    """How many of at most `limit` drafts a request without any should wait for, beside `other_rows` rows; 0: none.

    The same as `choose` would wait for, with all drafts in one decode. They come one by one.
    """
    plain_ms = cost(1 + other_rows)
    rate = max(rate, 1.0 / plain_ms)
    best_value, best = 1.0 - rate * plain_ms, 0
    tokens = 1.0
    for drafts in range(1, min(limit, MAX_WIDTH, max_rows - 1 - other_rows) + 1):
        wait_ms = arrival.first_ms + (drafts - 1) * arrival.step_ms
        if wait_ms > plain_ms:
            break
        tokens += arrival.acceptance**drafts
        value = tokens - rate * (wait_ms + cost(1 + other_rows + drafts))
        if value > best_value + 1e-9:
            best_value, best = value, drafts
    return best


def _waits(candidates: Sequence[RowCandidate], longest_ms: float) -> list[float]:
    """The waiting times to consider: 0, and until each arriving draft, at most `longest_ms`."""
    moments = {0.0}
    for candidate in candidates:
        if candidate.arrival is not None:
            arrival = candidate.arrival
            room = min(candidate.limit, MAX_WIDTH) - len(candidate.ready)
            moments.update(
                arrival.first_ms + index * arrival.step_ms for index in range(max(0, room - arrival.batch + 1))
            )
    return sorted(moment for moment in moments if moment <= longest_ms or moment == 0.0)


def _path_probabilities(candidate: RowCandidate, wait_ms: float) -> Sequence[float]:
    """For each draft that is there after the wait, best first, the probability that the walk accepts it."""
    most = min(candidate.limit, MAX_WIDTH)
    arrival = candidate.arrival
    if arrival is None or wait_ms < arrival.first_ms:
        return candidate.ready[:most]
    waited = wait_ms - arrival.first_ms
    more = arrival.batch + int(waited / arrival.step_ms + 1e-6) if arrival.step_ms > 0 else most
    coming = [candidate.tip * arrival.acceptance**depth for depth in range(1, min(more, most) + 1)]
    return sorted((*candidate.ready, *coming), reverse=True)[:most]


def _chains(candidates: Sequence[RowCandidate], wait_ms: float) -> list[Sequence[float]]:
    return [_path_probabilities(candidate, wait_ms) for candidate in candidates]


def _gains(chains: Sequence[Sequence[float]], equal_widths: bool) -> list[float]:
    """The tokens that each step adds: the likeliest draft that is left, or with equal widths the next of each chain."""
    if equal_widths:
        return [sum(drafts) for drafts in zip_longest(*chains, fillvalue=0.0)]
    return sorted(chain.from_iterable(chains), reverse=True)


def _widths(chains: Sequence[Sequence[float]], steps: int, equal_widths: bool) -> tuple[int, ...]:
    """The drafts of each chain after so many steps."""
    if equal_widths:
        return tuple(min(steps, len(gains)) for gains in chains)
    order = sorted((-gain, depth, index) for index, gains in enumerate(chains) for depth, gain in enumerate(gains))
    widths = [0] * len(chains)
    for _, _, index in order[:steps]:
        widths[index] += 1
    return tuple(widths)
