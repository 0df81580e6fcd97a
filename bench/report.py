"""What the samples say: one summary per configuration and temperature, the targets to reach, a table.

Keys of bench/results/latest.json:
  created            when, UTC
  machine            cpu, cores, memory_bytes, system, python, llama_cpp, row_ms: what the numbers hold for
  settings           pair, repetitions, tokens, target and drafts (file names and bytes)
  summaries          per configuration and temperature:
    tokens_per_second  mean, min, max, stdev, count over all requests: decode speed, prefill left out
    ratio_to_plain     geometric mean over pairs with the same prompt and repetition, so that drift cancels
    ratio_to_raw       the same against the raw loop
    tokens_per_round, acceptance_rate  over all requests; null where nothing was drafted
    first_token_ms     median
    over_prefill_ms    median difference between the first token and the raw loop's prefill of the same prompt
    bandwidth_share    of the raw loop and plain: bytes of weights per token × tokens_per_second over the measured read
                       bandwidth of the target's core; null where drafts helped, or where that was not measured
    decode_share       of the verifier's busy time inside llama_decode; null for the raw loop
    cpu_share          CPU time of the verifier over its busy time; well below 1: something else ran on its core
    equal_to_plain, equal_to_raw, compared   token sequences that were equal, and how many there were
    reasons            why requests did not speculate, by count
  reading            weights (bytes that a plain decode reads per token), bandwidth (bytes per second; 0: not measured)
                     and the threads that it was measured with
  memory             per process: rss, peak_rss, pss in bytes, the highest seen
  targets            name, wanted, got, reached
  samples            every request; tokens as ids
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from bench.measure import CONFIGURATIONS, DRAFT_8BIT, LOOKUP, PLAIN, RAW, Measured, Sample
from bench.versus.results import titled, yes_or_no
from services.launcher.bench.summary import Spread, ratio, spread

_MEGABYTE: Final = 1e6
_UNDISTURBED: Final = 0.95  # rounds are computation, so a verifier alone on its core gets nearly all of its busy time


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One row of the table; the module's docstring explains the fields."""

    configuration: str
    temperature: float
    tokens_per_second: Spread | None
    ratio_to_plain: float | None
    ratio_to_raw: float | None
    tokens_per_round: float | None
    acceptance_rate: float | None
    first_token_ms: float
    over_prefill_ms: float | None
    bandwidth_share: float | None
    decode_share: float | None
    cpu_share: float | None
    equal_to_plain: int
    equal_to_raw: int
    compared: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One number to reach."""

    name: str
    wanted: str
    got: float
    reached: bool


def summaries(measured: Measured) -> list[ReportRow]:
    """A summary for every configuration and temperature that has samples, in the table's order."""
    temperatures = sorted({sample.temperature for sample in measured.samples})
    return [
        _summary(measured, configuration, temperature)
        for temperature in temperatures
        for configuration in CONFIGURATIONS
        if _samples(measured, configuration, temperature)
    ]


def _samples(measured: Measured, configuration: str, temperature: float) -> list[Sample]:
    return [
        sample
        for sample in measured.samples
        if sample.configuration == configuration and sample.temperature == temperature
    ]


def _summary(measured: Measured, configuration: str, temperature: float) -> ReportRow:
    samples = _samples(measured, configuration, temperature)
    plain = _paired(samples, _samples(measured, PLAIN, temperature))
    raw = _paired(samples, _samples(measured, RAW, temperature))
    drafted, accepted, rounds = (
        sum(int(sample.statistics.get(key) or 0) for sample in samples) for key in ("drafted", "accepted", "rounds")
    )
    speeds = spread([sample.tokens_per_second for sample in samples])
    return ReportRow(
        configuration=configuration,
        temperature=temperature,
        tokens_per_second=speeds,
        ratio_to_plain=_ratio(plain),
        ratio_to_raw=_ratio(raw),
        tokens_per_round=sum(len(sample.tokens) for sample in samples) / rounds if rounds and drafted else None,
        acceptance_rate=accepted / drafted if drafted else None,
        first_token_ms=1000 * statistics.median(sample.first_token_s for sample in samples),
        over_prefill_ms=_median((one.first_token_s - other.first_token_s) * 1000 for one, other in raw),
        bandwidth_share=measured.reading.share(speeds.mean) if speeds and configuration in (RAW, PLAIN) else None,
        decode_share=_share(samples, "decode_us"),
        cpu_share=_share(samples, "cpu_us"),
        equal_to_plain=sum(one.tokens == other.tokens for one, other in plain),
        equal_to_raw=sum(one.tokens == other.tokens for one, other in raw),
        compared=len(samples),
        reasons=dict(Counter(reason for sample in samples if (reason := str(sample.statistics.get("reason") or "")))),
    )


def _paired(samples: list[Sample], others: list[Sample]) -> list[tuple[Sample, Sample]]:
    by_request = {(other.prompt, other.repetition): other for other in others}
    pairs = ((sample, by_request.get((sample.prompt, sample.repetition))) for sample in samples)
    return [(sample, other) for sample, other in pairs if other is not None]


def _ratio(pairs: list[tuple[Sample, Sample]]) -> float | None:
    found = ratio((one.tokens_per_second, other.tokens_per_second) for one, other in pairs)
    return found.mean if found else None


def _median(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.median(values) if values else None


def _share(samples: list[Sample], part: str) -> float | None:
    busy, spent = (sum(sample.spent.get(kind, 0) for sample in samples) for kind in ("busy_us", part))
    return spent / busy if busy else None


def goals(measured: Measured) -> list[Goal]:
    """The numbers to reach, as far as they were measured; the worst one counts."""
    found = summaries(measured)
    plain = [one.ratio_to_raw for one in found if one.configuration == PLAIN and one.ratio_to_raw is not None]
    draft = [one.ratio_to_plain for one in found if one.configuration == DRAFT_8BIT and one.ratio_to_plain is not None]
    first = [late for name in CONFIGURATIONS if name != RAW and (late := _over_prefill_ms(measured, name)) is not None]
    peaks = {name: [usage["peak_rss"] / _MEGABYTE] for name, usage in measured.memory.items() if "peak_rss" in usage}
    candidates: list[tuple[str, str, list[float], Callable[[float], bool], Callable[[list[float]], float]]] = [
        ("plain, of the raw loop's speed", ">= 0.97", plain, lambda value: value >= 0.97, min),
        ("8-bit draft, times plain", ">= 3.0", draft, lambda value: value >= 3.0, min),
        ("first token after the raw prefill, ms", "<= 15", first, lambda value: value <= 15, max),
        ("gateway, peak MB", "< 150", peaks.get("gateway", []), lambda value: value < 150, max),
        ("lookup drafter, peak MB", "< 100", peaks.get(f"{LOOKUP} drafter", []), lambda value: value < 100, max),
    ]
    return [
        Goal(name=name, wanted=wanted, got=worst(values), reached=reached(worst(values)))
        for name, wanted, values, reached, worst in candidates
        if values
    ]


def _over_prefill_ms(measured: Measured, configuration: str) -> float | None:
    """Over both temperatures together: the prefill knows none, and twice the pairs halve the noise."""
    pairs = [
        (one.first_token_s - other.first_token_s) * 1000
        for temperature in {sample.temperature for sample in measured.samples}
        for one, other in _paired(_samples(measured, configuration, temperature), _samples(measured, RAW, temperature))
    ]
    return _median(pairs)


def as_json(measured: Measured) -> dict[str, Any]:
    """The contents of latest.json but for its head."""
    return {
        "summaries": [asdict(summary) for summary in summaries(measured)],
        "reading": asdict(measured.reading),
        "memory": measured.memory,
        "targets": [asdict(goal) for goal in goals(measured)],
        "samples": [asdict(sample) for sample in measured.samples],
    }


def speed_table(measured: Measured) -> Table:
    """How fast: one line per configuration and temperature."""
    table = titled(
        "decode speed, one request at a time", "T", "", "tok/s", "min", "max", "stdev", "x plain", "x raw", "bandwidth"
    )
    for one in summaries(measured):
        speeds = [f"{getattr(one.tokens_per_second, key):.2f}" for key in ("mean", "min", "max", "stdev")]
        ratios = (_number(one.ratio_to_plain, "{:.2f}"), _number(one.ratio_to_raw, "{:.3f}"))
        _row(table, one, *speeds, *ratios, _number(one.bandwidth_share, "{:.0%}"))
    return table


def cause_table(measured: Measured) -> Table:
    """Why: rounds, acceptance, waiting, and whether the answers were the same."""
    headings = ("T", "", "/round", "accept", "1st ms", "-raw", "decode", "cpu", "=plain", "=raw")
    table = titled("tokens per round, first token (minus raw prefill), shares of busy time, equal", *headings)
    for one in summaries(measured):
        _row(
            table,
            one,
            _number(one.tokens_per_round, "{:.2f}"),
            _number(one.acceptance_rate, "{:.0%}"),
            f"{one.first_token_ms:.0f}",
            _number(one.over_prefill_ms, "{:+.1f}"),
            _number(one.decode_share, "{:.1%}"),
            _number(one.cpu_share, "{:.0%}"),
            f"{one.equal_to_plain}/{one.compared}",
            f"{one.equal_to_raw}/{one.compared}",
        )
    return table


def remarks(measured: Measured) -> list[str]:
    """What to know before believing the tables: disturbed runs, and why drafted requests did not speculate."""
    disturbed = [
        f"T={one.temperature:g} {one.configuration}: the verifier got only {one.cpu_share:.0%} of its core; something"
        " else ran there, so these numbers say little"
        for one in summaries(measured)
        if one.cpu_share is not None and 0 < one.cpu_share < _UNDISTURBED
    ]
    return disturbed + [
        f"T={one.temperature:g} {one.configuration}: {count} of {one.compared} did not speculate: {reason}"
        for one in summaries(measured)
        if one.configuration not in (RAW, PLAIN)
        for reason, count in one.reasons.items()
    ]


def _row(table: Table, one: ReportRow, *cells: str) -> None:
    last = one.configuration == CONFIGURATIONS[-1]
    table.add_row(f"{one.temperature:g}", one.configuration, *cells, end_section=last)


def goal_table(measured: Measured) -> Table:
    """The table of targets, the worst value of each."""
    table = titled("targets", "target", "wanted", "got", "reached", left=("target",))
    for goal in goals(measured):
        table.add_row(goal.name, goal.wanted, f"{goal.got:.2f}", yes_or_no(goal.reached))
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
