"""What was found of an emulated target: decode shares, where the rest went, and whether a core is the limit. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

from bench.paced.target import Curve
from bench.paced.watch import PHASES, SteadyRound
from bench.versus.ratios import Key, mean, ratio
from bench.versus.results import CellResult, Finding

PLAIN: Final = "plain"
BUSY: Final = 0.9  # of a core: more leaves no room
DISTURBED: Final = 0.03  # of the time; the verifier's two threads rarely want to run at once
_BESIDE: Final = (*PHASES, "beside")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigures:
    """One answer: its steady rounds, and by process the part of the side's core that was used meanwhile."""

    rounds: list[SteadyRound]
    tokens: int
    tokens_per_second: float
    first_token_ms: float
    cached: int
    delayed: dict[str, float]  # by process, the part of the time in which its threads waited for their core
    busy: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer of one contestant."""

    name: str
    temperature: float
    repetition: int
    found: AnswerFigures

    @property
    def key(self) -> Key:
        return self.name, self.repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Where the time of a contestant's steady rounds went: medians over rounds, ms. `late` is decodes behind the curve.

    Counts are means. `step_ms` is what a token takes the drafter. `delayed` is, by process, the part of the time in
    which its threads waited for their core.
    """

    name: str
    temperature: float
    rounds: int
    rows: float
    tokens_per_round: float
    decode_ms: float
    round_ms: float
    ms: dict[str, float]
    late_ms: float
    step_ms: float
    delayed: dict[str, float]
    busy: dict[str, float]

    @property
    def core(self) -> float:
        """How busy the side's core was."""
        return sum(self.busy.values())

    @property
    def drafts_per_round(self) -> float:
        """Tokens that the drafter can make in a round."""
        return self.round_ms / self.step_ms if self.step_ms else math.inf

    def limit(self, wanted: float) -> str:
        """What the figures say about the side's core, as a sentence; `wanted` tokens a round come if drafts are ready.

        A drafter that is too slow rests, so its core need not be busy to be the limit.
        """
        used = ", ".join(f"{name} {part:.0%}" for name, part in self.busy.items())
        told = f"T={self.temperature:g}, {self.name}: the side's core was {self.core:.0%} busy ({used})"
        if self.step_ms:
            told += (
                f"; the drafter takes {self.step_ms:.1f} ms a token, so it can make {self.drafts_per_round:.1f} in a"
                f" round, and {wanted:.1f} would be used"
            )
        full = self.core >= BUSY or self.drafts_per_round < wanted
        verdict = "the core is the limit" if full else "the core is not the limit"
        return f"{told}: {verdict}{', as far as a core held by others can tell' if self._held('drafter') else ''}"

    def _held(self, process: str) -> bool:
        return self.delayed.get(process, 0.0) >= DISTURBED

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {self.ms[name]:.2f}" for name in _BESIDE)
        return (
            f"T={self.temperature:g}, {self.name}: {self.rows:.1f} rows and {self.tokens_per_round:.2f} tokens a round;"
            f" ms beside {self.decode_ms:.1f} of decode: {parts}, late {self.late_ms:.2f}{self._disturbed}"
        )

    @property
    def _disturbed(self) -> str:
        found = [f"the {name}'s core {part:.0%}" for name, part in self.delayed.items() if self._held(name)]
        return f"; others held {' and '.join(found)} of the time, so the share is a lower bound" if found else ""


@dataclass(slots=True, kw_only=True)
class PacedResult(CellResult):
    """A cell with the time of its rounds."""

    spent: list[Spent] = field(default_factory=list)


def share(curve: Curve, rounds: Sequence[SteadyRound], *, waits: bool = True) -> float:
    """The part of the rounds' time in which the emulated device computed; a decode that ends late counts against us.

    Without `waits` the time in which the verifier waited for drafts is left out.
    """
    computed = sum(curve(one.rows) for one in rounds)
    return computed / sum(one.wall - (0.0 if waits else one.wait) for one in rounds)


def findings(
    cell: str,
    curve: Curve,
    wanted_share: float,
    samples: Sequence[Sample],
    *,
    wanted: tuple[str, ...],
    alike: str,
    trees: tuple[str, str],
) -> PacedResult:
    """Everything about a cell.

    The contestants in `wanted` should reach the share. `alike` has drafts that are always in time and as good as the
    real ones; `trees` names one contestant with trees and one without.
    """
    result = PacedResult()
    for temperature in sorted({sample.temperature for sample in samples}):
        mine = [sample for sample in samples if sample.temperature == temperature]
        names = list(dict.fromkeys(sample.name for sample in mine))
        for name in names:
            some = [sample for sample in mine if sample.name == name and sample.found.rounds]
            if not some:
                result.notes.append(f"T={temperature:g}, {name}: no steady rounds; take more tokens")
                continue
            shares = {sample.key: share(curve, sample.found.rounds) for sample in some}
            result.findings.append(
                Finding(
                    cell=cell,
                    what="decode share",
                    opponent=name,
                    temperature=temperature,
                    ours=mean({sample.key: sample.found.tokens_per_second for sample in some}),
                    ratio=mean(shares),
                    wanted=wanted_share if name in wanted else None,
                )
            )
            if name != PLAIN:
                shares = {sample.key: share(curve, sample.found.rounds, waits=False) for sample in some}
                what = "the same without waits for drafts"
                result.findings.append(
                    Finding(cell=cell, what=what, opponent=name, temperature=temperature, ratio=mean(shares))
                )
            result.spent.append(_spent(name, temperature, curve, some))
        result.findings += _trees(cell, temperature, mine, trees)
    tokens = {one.temperature: one.tokens_per_round for one in result.spent if one.name == alike}
    result.notes += [str(one) for one in result.spent]
    result.notes += [one.limit(tokens.get(one.temperature, 1.0)) for one in result.spent if one.name != PLAIN]
    return result


def _trees(cell: str, temperature: float, samples: Sequence[Sample], names: tuple[str, str]) -> list[Finding]:
    with_trees, without = (
        {("", sample.repetition): sample.found.tokens_per_second for sample in samples if sample.name == name}
        for name in names
    )
    if not with_trees.keys() & without.keys() or min(*with_trees.values(), *without.values()) <= 0:
        return []
    return [
        Finding(
            cell=cell,
            what="trees over chains",
            temperature=temperature,
            ours=mean(with_trees),
            theirs=mean(without),
            opponent=names[1],
            ratio=ratio(with_trees, without),
        )
    ]


def _spent(name: str, temperature: float, curve: Curve, samples: Sequence[Sample]) -> Spent:
    rounds = [one for sample in samples for one in sample.found.rounds]
    return Spent(
        name=name,
        temperature=temperature,
        rounds=len(rounds),
        rows=fmean(one.rows for one in rounds),
        tokens_per_round=fmean(one.tokens for one in rounds),
        decode_ms=fmean(curve(one.rows) for one in rounds),
        round_ms=median(one.wall for one in rounds),
        ms={phase: median(getattr(one, phase) for one in rounds) for phase in _BESIDE},
        late_ms=median(one.decode - curve(one.rows) for one in rounds),
        step_ms=0.0 if name == PLAIN else median(one.step for one in rounds),
        delayed={
            process: fmean(sample.found.delayed[process] for sample in samples) for process in samples[0].found.delayed
        },
        busy={process: fmean(sample.found.busy[process] for sample in samples) for process in samples[0].found.busy},
    )
