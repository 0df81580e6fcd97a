"""Which rows the next decode gets: those with the highest expected tokens per second at the measured cost of rows.

Pure. One rule covers adaptive length, fair sharing, waiting and switching off: take rows in order of path probability
while E / (wait + v(rows)) rises, where E counts one certain token per request and v is the measured decode time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_WIDTH: Final = 32  # drafts per request and round; beyond, a chain adds less than it costs anywhere we measured


@dataclass(frozen=True, slots=True)
class Arrival:
    """Drafts that have not come yet: `batch` of them in `first_ms`, then one every `step_ms`, each with this
    acceptance."""

    first_ms: float
    step_ms: float
    acceptance: float
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """One request that will get a row: for each ready draft, best first, the probability that the walk reaches and
    accepts it, and what is coming behind the end of the likeliest path, which the walk reaches with `tip`.

    `limit` bounds its drafts (remaining tokens, room in the context, or zero where speculation is off).
    """

    ready: tuple[float, ...]
    limit: int
    arrival: Arrival | None = None
    tip: float = 1.0


@dataclass(frozen=True, slots=True)
class Choice:
    """Draft rows per request, in the order of the candidates, after waiting `wait_ms` for what should arrive."""

    widths: tuple[int, ...]
    wait_ms: float
    rate: float  # expected tokens per millisecond
    plain_rate: float  # the same with no drafts at all


def choose(
    candidates: Sequence[Candidate],
    cost: Callable[[int], float],
    other_rows: int,
    equal_widths: bool,
    max_rows: int,
    may_wait: bool,
) -> Choice:
    """Widths for one decode that also carries `other_rows` rows of prefill.

    With `equal_widths` (streams layout) every request is padded to the widest, so all widths are priced as equal.
    """
    count = len(candidates)
    plain = Choice((0,) * count, 0.0, 0.0, 0.0)
    if not count:
        return plain
    plain_rate = count / cost(count + other_rows)
    best = Choice(plain.widths, 0.0, plain_rate, plain_rate)
    if not _can_pay(candidates, cost, other_rows, max_rows, plain_rate):
        return best
    for wait_ms in _waits(candidates, cost(count + other_rows) if may_wait else 0.0):
        chains = [_path_probabilities(candidate, wait_ms) for candidate in candidates]
        pick = _equal if equal_widths else _best_first
        widths, rate = pick(chains, cost, other_rows, max_rows, wait_ms)
        if rate > best.rate * (1.0 + 1e-9):
            best = Choice(widths, wait_ms, rate, plain_rate)
    return best


def _can_pay(
    candidates: Sequence[Candidate], cost: Callable[[int], float], other_rows: int, max_rows: int, plain_rate: float
) -> bool:
    """False if even drafts that are always right would not pay: then nothing below needs to be computed."""
    count = len(candidates)
    most = sum(min(candidate.limit, MAX_WIDTH) for candidate in candidates)
    return any(
        (count + drafts) / cost(count + drafts + other_rows) > plain_rate
        for drafts in range(1, min(most, max_rows - count - other_rows) + 1)
    )


def _waits(candidates: Sequence[Candidate], longest_ms: float) -> list[float]:
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


def _path_probabilities(candidate: Candidate, wait_ms: float) -> Sequence[float]:
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
    chains: Sequence[Sequence[float]], cost: Callable[[int], float], other_rows: int, max_rows: int, wait_ms: float
) -> tuple[tuple[int, ...], float]:
    """Uneven widths: rows in order of path probability over all requests."""
    count = len(chains)
    order = sorted(
        ((-probability, depth, index) for index, chain in enumerate(chains) for depth, probability in enumerate(chain))
    )[: max(0, max_rows - count - other_rows)]
    tokens = float(count)
    best_rate, best_rows = tokens / (wait_ms + cost(count + other_rows)), 0
    for rows, (negative, _, _) in enumerate(order, start=1):
        tokens -= negative
        rate = tokens / (wait_ms + cost(count + rows + other_rows))
        if rate > best_rate:
            best_rate, best_rows = rate, rows
    widths = [0] * count
    for _, _, index in order[:best_rows]:
        widths[index] += 1
    return tuple(widths), best_rate


def _equal(
    chains: Sequence[Sequence[float]], cost: Callable[[int], float], other_rows: int, max_rows: int, wait_ms: float
) -> tuple[tuple[int, ...], float]:
    """Equal widths: one more row for every request at a time; short chains are padded and pay for it."""
    count = len(chains)
    tokens = float(count)
    best_rate, best_width = tokens / (wait_ms + cost(count + other_rows)), 0
    for width in range(1, max(map(len, chains)) + 1):
        rows = count * (width + 1) + other_rows
        if rows > max_rows:
            break
        tokens += sum(chain[width - 1] for chain in chains if len(chain) >= width)
        rate = tokens / (wait_ms + cost(rows))
        if rate > best_rate:
            best_rate, best_width = rate, width
    return tuple(min(best_width, len(chain)) for chain in chains), best_rate
