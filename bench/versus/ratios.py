"""The arithmetic of a comparison: paired ratios and their spread, the best setting, the ideal speed. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Key = tuple[str, int]  # prompt and repetition: what two figures must share to be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSpread:
    """A figure, and the lowest and highest that a single repetition gave."""

    value: float
    low: float
    high: float


def alone(value: float) -> RatioSpread:
    """A figure that no repetition varies."""
    return RatioSpread(value=value, low=value, high=value)


def _spread(values: Mapping[Key, float], mean: Callable[[Iterable[float]], float]) -> RatioSpread:
    by_repetition: dict[int, list[float]] = {}
    for (_, repetition), value in values.items():
        by_repetition.setdefault(repetition, []).append(value)
    parts = [mean(part) for part in by_repetition.values()]
    return RatioSpread(value=mean(values.values()), low=min(parts), high=max(parts))


def mean(values: Mapping[Key, float]) -> RatioSpread:
    """The arithmetic mean. Needs at least one value."""
    return _spread(values, statistics.fmean)


def ratio(ours: Mapping[Key, float], theirs: Mapping[Key, float]) -> RatioSpread:
    """The geometric mean of ours/theirs over what both measured, so that a drift of the machine cancels.

    Raises `ValueError` if they share nothing, or if anything that they share is not positive.
    """
    shared = ours.keys() & theirs.keys()
    if not shared:
        raise ValueError("nothing was measured on both sides")
    if any(min(ours[key], theirs[key]) <= 0 for key in shared):
        raise ValueError("a ratio needs positive figures")
    return _spread({key: ours[key] / theirs[key] for key in sorted(shared)}, statistics.geometric_mean)


def best(figures: Mapping[str, Iterable[float]]) -> str:
    """The name with the highest mean, the first of equals. Needs at least one name; one without figures is worst."""

    def average(name: str) -> float:
        values = list(figures[name])
        return statistics.fmean(values) if values else float("-inf")

    return max(figures, key=average)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What the verifier did for some answers after the first token of each: rounds, tokens, draft rows."""

    rounds: int
    tokens: int
    drafted: int

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds

    @property
    def rows_per_round(self) -> float:
        """The target's own row included."""
        return 1 + self.drafted / self.rounds


def ideal_tokens_per_second(rounds: Rounds, row_ms: Callable[[float], float]) -> float:
    """The speed if a request's rounds followed each other without a gap: E / v(rows).

    E is the tokens per round that were reached and v the measured time of a decode of so many rows, in ms, at the mean
    number of rows. As v is close to linear between the counts that occur, the mean row count stands for all of them.
    """
    return 1000 * rounds.tokens_per_round / row_ms(rounds.rows_per_round)
