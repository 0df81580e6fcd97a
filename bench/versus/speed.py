"""Cells about decode speed: one request with each draft, and four at once, against the best peer setting.

The fraction of the ideal compares what a client saw with E/v(rows): the tokens per round that our drafts reached, over
the measured time of a decode of that many rows, as if rounds followed each other without a gap. The decode share is
the part of the verifier's busy time inside llama_decode, prefill included.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.tasks import QUESTIONS, prompts
from bench.versus.contest import OURS, Contestant, Ours, Runs, Work, works
from bench.versus.peers import PeerSetting, draft_settings
from bench.versus.ratios import alone
from bench.versus.results import CellResult, Finding, compared, of_the_ideal
from bench.versus.setup import AUDITION_TOKENS, Setup, meet, opponent, winners
from shared.law.speedup import RowCosts
from shared.wire.messages import VerifierCard


async def one_request(setup: Setup, cell: str, draft: Path, wanted: Mapping[float, float]) -> CellResult:
    """Decode speed of one request at each temperature, against the best setting of each peer."""
    work = works(setup.pair.draft_4bit, prompts(setup.prompts), setup.tokens)
    return await _fastest(setup, cell, draft, work, wanted)


async def four(setup: Setup, cell: str, wanted: Mapping[float, float]) -> CellResult:
    """Tokens per second of four requests together, prefill included, against the best setting of each peer."""
    work = works(setup.pair.draft_4bit, QUESTIONS, setup.tokens, together=True)
    return await _fastest(setup, cell, setup.pair.draft_8bit, work, wanted, slots=len(QUESTIONS))


async def _fastest(
    setup: Setup,
    cell: str,
    draft: Path,
    work: Mapping[float, list[Work]],
    wanted: Mapping[float, float],
    slots: int = 1,
) -> CellResult:
    result = CellResult()
    chosen = await _choose(setup, draft, work, result, slots)
    async with setup.stack(setup.pair.target, parallel=slots) as stack:
        await stack.start_drafter(draft)
        for temperature, settings in chosen.items():
            before = await stack.settled_card()
            async with setup.opponents(settings, setup.pair.target, slots=slots) as theirs:
                contestants: list[Contestant] = [Ours(stack), *theirs]
                runs = await meet(setup, contestants, work[temperature])
            names = [setting.name for setting in settings]
            result.findings += against(cell, "peer", temperature, runs, names, wanted[temperature])
            if slots == 1:
                result.findings += _ideal(cell, temperature, runs, before, await stack.settled_card())
            result.runs += runs.all
    return result


async def _choose(
    setup: Setup, draft: Path, works: Mapping[float, list[Work]], result: CellResult, slots: int
) -> dict[float, list[PeerSetting]]:
    """The settings that compete at each temperature: the first work, cut short, tells."""
    settings = [
        setting
        for engine in setup.binaries.engines
        for setting in draft_settings(engine, draft)
        if setting.draft_max in _widths(setup, slots)
    ]
    tokens = min(setup.tokens, AUDITION_TOKENS // (1 if slots == 1 else 2))
    first = [tuple(replace(task, tokens=tokens) for task in some[0]) for some in works.values()]
    chosen = {}
    for temperature, speeds in (await setup.audition(settings, setup.pair.target, first, slots=slots)).items():
        chosen[temperature] = winners(speeds)
        result.auditions[f"T={temperature:g}"] = {setting.name: speed for setting, speed in speeds.items()}
        plain = {setting.engine: speed for setting, speed in speeds.items() if setting.plain}
        result.notes += [
            f"T={temperature:g} {setting.name}: {speeds[setting] / plain[setting.engine]:.2f} x its own plain mode on"
            " one prompt"
            for engine in setup.binaries.engines
            for setting in [max((one for one in speeds if one.engine is engine), key=lambda one: speeds[one])]
            if plain[engine] > 0
        ]
    return chosen


def _widths(setup: Setup, slots: int) -> tuple[int, ...]:
    """Draft lengths to try, 0 for plain. Several requests take long together, and two drafts are too few for them."""
    if setup.quick:
        return 0, 4
    return (0, 4, 8) if slots > 1 else (0, 2, 4, 8)


def against(cell: str, kind: str, temperature: float, runs: Runs, names: list[str], wanted: float) -> list[Finding]:
    """Ours against each opponent; only the fastest one in the contest decides whether the wanted ratio is reached."""
    fastest = opponent(runs, names) if names else ""
    return [
        compared(
            cell,
            f"{'best' if name == fastest else 'other'} {kind}",
            temperature,
            runs,
            (OURS, name),
            wanted if name == fastest else None,
        )
        for name in sorted(names, key=lambda name: name != fastest)
    ]


def _ideal(cell: str, temperature: float, runs: Runs, before: VerifierCard, after: VerifierCard) -> list[Finding]:
    rounds = runs.rounds(OURS)
    if rounds is None:
        return []
    costs = RowCosts(dict(after.row_ms))
    decode, busy = (after.counters[name] - before.counters[name] for name in ("decode_us", "busy_us"))
    share = alone(decode / busy if busy else 0.0)
    return [
        of_the_ideal(cell, temperature, runs.speeds(OURS), rounds, lambda rows: _between(costs, rows)),
        Finding(cell=cell, what="decode share", temperature=temperature, ratio=share),
    ]


def _between(costs: RowCosts, rows: float) -> float:
    """Milliseconds for a mean number of rows, between the two whole counts around it."""
    low = int(rows)
    return costs(low) + (rows - low) * (costs(low + 1) - costs(low))
