"""Which rows the next decode gets: those whose expected tokens are worth more than the time that they cost.

Pure. One rule covers adaptive length, tree shape, fair sharing, waiting and switching off: take rows in order of path
probability while E - rate * (wait + v(rows)) rises, where E counts one certain token per request, v is the measured
decode time and `rate` is what time has been worth lately, in tokens per millisecond. That rate, and not the best one of
this round alone, is what a renewal process is to be maximised by (Dinkelbach 1967): a round that starts poorly after a
refusal is better kept short than made to look good.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.law.payoff import MAX_WIDTH, perfect_drafts_pay


def most_outputs(requests: int) -> int:
    """Rows of one decode whose logits are read, at most: a token of each request and the drafts behind it.

    Of a prompt only the last row's are, and a request that reads its prompt has no drafts.
    """
    return requests * (1 + MAX_WIDTH)


@dataclass(frozen=True, slots=True)
class ExpectedDrafts:
    """Drafts that have not come yet: `batch` of them in `first_ms`, then one every `step_ms`, each with this
    acceptance. They may be late by `grace_ms` before they count as lost."""

    first_ms: float
    step_ms: float
    acceptance: float
    batch: int = 1
    grace_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RowCandidate:
    """One request that will get a row: for each ready draft, best first, the probability that the walk reaches and
    accepts it, and what is coming behind the end of the likeliest path, which the walk reaches with `tip`.

    `limit` bounds its drafts (remaining tokens, room in the context, or zero where speculation is off).
    """

    ready: tuple[float, ...]
    limit: int
    arrival: ExpectedDrafts | None = None
    tip: float = 1.0


@dataclass(frozen=True, slots=True)
class RowAllocation:
    """Draft rows per request, in the order of the candidates, after waiting `wait_ms` for what should arrive."""

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
    """Widths for one decode that also carries `other_rows` rows of prefill.

    Time is worth `rate` tokens per millisecond, and never less than plain decoding makes of it. With `equal_widths`
    (streams layout) every request is padded to the widest, so all widths are priced as equal.
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
    """Not at all, or until one of the next drafts arrives; never longer than a plain step takes."""
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
    """For each draft as it will be after the wait the probability that the walk reaches and accepts it, best first."""
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
    """Equal widths: one more row for every request at a time; short chains are padded and pay for it."""
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
