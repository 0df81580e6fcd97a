"""Chooses the rows of the next decode: those whose expected tokens are worth more than their time. Pure.

One rule covers adaptive length, tree shape, fair sharing, waiting and switching off: take rows in order of path
probability while E - rate * (wait + v(rows)) rises. E is the expected number of tokens, with one certain token per
request, v is the measured decode time, and `rate` is the recent speed in tokens per millisecond. Using the recent rate
instead of the best rate of this round alone maximises tokens per time over all rounds (Dinkelbach 1967): after a
refusal it keeps a poor round short.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    best = RowAllocation((0,) * count, 0.0, float(count), plain_ms)
    most = min(sum(min(candidate.limit, MAX_WIDTH) for candidate in candidates), max_rows - count - other_rows)
    if not perfect_drafts_pay(cost, most, 1.0, count, other_rows):
        return best
    rate = max(rate, count / plain_ms)
    pick = _equal if equal_widths else _best_first
    for wait_ms in _waits(candidates, plain_ms if may_wait else 0.0):
        chains = [_path_probabilities(candidate, wait_ms) for candidate in candidates]
        widths, tokens, decode_ms = pick(chains, cost, other_rows, max_rows, rate)
        ms = wait_ms + decode_ms
        if tokens - rate * ms > best.tokens - rate * best.ms + 1e-9:
            best = RowAllocation(widths, wait_ms, tokens, ms)
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


def _best_first(
    chains: Sequence[Sequence[float]], cost: Callable[[int], float], other_rows: int, max_rows: int, rate: float
) -> tuple[tuple[int, ...], float, float]:
    """Uneven widths: rows in order of path probability over all requests. Returns widths, tokens, milliseconds."""
    count = len(chains)
    order = sorted(
        ((-probability, depth, index) for index, chain in enumerate(chains) for depth, probability in enumerate(chain))
    )[: max(0, max_rows - count - other_rows)]
    tokens = float(count)
    best_tokens, best_ms, best_rows = tokens, cost(count + other_rows), 0
    for rows, (negative, _, _) in enumerate(order, start=1):
        tokens -= negative
        ms = cost(count + rows + other_rows)
        if tokens - rate * ms > best_tokens - rate * best_ms:
            best_tokens, best_ms, best_rows = tokens, ms, rows
    widths = [0] * count
    for _, _, index in order[:best_rows]:
        widths[index] += 1
    return tuple(widths), best_tokens, best_ms


def _equal(
    chains: Sequence[Sequence[float]], cost: Callable[[int], float], other_rows: int, max_rows: int, rate: float
) -> tuple[tuple[int, ...], float, float]:
    """Equal widths: one more row for every request at a time; padding rows of short chains cost time too."""
    count = len(chains)
    tokens = float(count)
    best_tokens, best_ms, best_width = tokens, cost(count + other_rows), 0
    for width in range(1, max(map(len, chains)) + 1):
        rows = count * (width + 1) + other_rows
        if rows > max_rows:
            break
        tokens += sum(chain[width - 1] for chain in chains if len(chain) >= width)
        ms = cost(rows)
        if tokens - rate * ms > best_tokens - rate * best_ms:
            best_tokens, best_ms, best_width = tokens, ms, width
    return tuple(min(best_width, len(chain)) for chain in chains), best_tokens, best_ms
