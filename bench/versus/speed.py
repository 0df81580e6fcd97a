"""Cells about decode speed: one request with each draft, and four at once, against the best peer setting.

The fraction of the ideal compares what a client saw with E/v(rows): the tokens per round that our drafts reached, over
the measured time of a decode of that many rows, as if rounds followed each other without a gap. The decode share is
the part of the verifier's busy time inside llama_decode, prefill included.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.tasks import QUESTIONS, Author, prompts
from bench.versus.contest import OURS, Contestant, Ours, Runs, Work, compete
from bench.versus.peers import PeerSetting, draft_settings
from bench.versus.ratios import RatioSpread, ideal_tokens_per_second, mean, ratio
from bench.versus.results import CellResult, Finding
from bench.versus.setup import AUDITION_TOKENS, Setup, opponent, warm_up, winners
from bench.workload import TEMPERATURES
from services.launcher.fleet.stack import Stack
from shared.fleet.registry import HEARTBEAT_S
from shared.law.speedup import RowCosts
from shared.wire.messages import VerifierCard

IDEAL_WANTED = 0.92


async def one_request(setup: Setup, cell: str, draft: Path, wanted: Mapping[float, float]) -> CellResult:
    """Decode speed of one request at each temperature, against the best setting of each peer."""
    author = Author(setup.pair.draft_4bit)
    works: dict[float, list[Work]] = {
        temperature: [
            (task,) for task in author.tasks(prompts(setup.prompts), temperature=temperature, tokens=setup.tokens)
        ]
        for temperature in TEMPERATURES
    }
    author.close()
    result = CellResult()
    chosen = await _choose(setup, draft, works, result)
    async with setup.stack(setup.pair.target) as stack:
        await stack.start_drafter(draft)
        for temperature in TEMPERATURES:
            before = await counters(stack)
            runs = await _contest(setup, stack, chosen[temperature], works[temperature])
            after = await counters(stack)
            result.findings += _against(cell, temperature, runs, [s.name for s in chosen[temperature]], wanted)
            result.findings += _ideal(cell, temperature, runs, before, after)
            result.runs += runs.all
    return result


async def four(setup: Setup, cell: str, wanted: Mapping[float, float]) -> CellResult:
    """Tokens per second of four requests together, prefill included, against the best setting of each peer."""
    author = Author(setup.pair.draft_4bit)
    works: dict[float, list[Work]] = {
        temperature: [tuple(author.tasks(QUESTIONS, temperature=temperature, tokens=setup.tokens))]
        for temperature in TEMPERATURES
    }
    author.close()
    draft = setup.pair.draft_8bit
    result = CellResult()
    chosen = await _choose(setup, draft, works, result, slots=len(QUESTIONS))
    async with setup.stack(setup.pair.target, parallel=len(QUESTIONS)) as stack:
        await stack.start_drafter(draft)
        for temperature in TEMPERATURES:
            runs = await _contest(setup, stack, chosen[temperature], works[temperature], slots=len(QUESTIONS))
            result.findings += _against(cell, temperature, runs, [s.name for s in chosen[temperature]], wanted)
            result.runs += runs.all
    return result


async def _choose(
    setup: Setup, draft: Path, works: Mapping[float, list[Work]], result: CellResult, slots: int = 1
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


async def _contest(setup: Setup, stack: Stack, settings: list[PeerSetting], works: list[Work], slots: int = 1) -> Runs:
    runs = Runs()
    async with setup.opponents(settings, setup.pair.target, slots=slots) as theirs:
        contestants: list[Contestant] = [Ours(stack), *theirs]
        for contestant in contestants:
            await warm_up(contestant, works[0])
        await compete(contestants, works, setup.repetitions, setup.step, runs)
    return runs


def _against(
    cell: str, temperature: float, runs: Runs, names: list[str], wanted: Mapping[float, float]
) -> list[Finding]:
    """Ours against each peer; only the fastest one in the contest decides whether the wanted ratio is reached."""
    if not names:
        return []
    fastest = opponent(runs, names)
    ours = runs.speeds(OURS)
    return [
        Finding(
            cell=cell,
            what="best peer" if name == fastest else "other peer",
            temperature=temperature,
            ours=mean(ours),
            theirs=mean(runs.speeds(name)),
            opponent=name,
            ratio=ratio(ours, runs.speeds(name)),
            wanted=wanted[temperature] if name == fastest else None,
        )
        for name in sorted(names, key=lambda name: name != fastest)
    ]


async def counters(stack: Stack) -> VerifierCard:
    """The verifier's card after a heartbeat that follows the last answer."""
    await asyncio.sleep(HEARTBEAT_S + 0.3)
    card = await stack.verifier_card()
    if card is None:
        raise RuntimeError("the verifier left the fleet")
    return card


def _ideal(cell: str, temperature: float, runs: Runs, before: VerifierCard, after: VerifierCard) -> list[Finding]:
    rounds = runs.rounds(OURS)
    if rounds is None:
        return []
    costs = RowCosts(dict(after.row_ms))
    ideal = ideal_tokens_per_second(rounds, lambda rows: between(costs, rows))
    speeds = runs.speeds(OURS)
    fraction = mean({key: speed / ideal for key, speed in speeds.items()})
    decode, busy = (after.counters[name] - before.counters[name] for name in ("decode_us", "busy_us"))
    share = decode / busy if busy else 0.0
    note = f"{rounds.tokens_per_round:.2f} tokens on {rounds.rows_per_round:.1f} rows"
    return [
        Finding(
            cell=cell,
            what="of the ideal E/v(rows)",
            temperature=temperature,
            ours=mean(speeds),
            theirs=RatioSpread(value=ideal, low=ideal, high=ideal),
            opponent=note,
            ratio=fraction,
            wanted=IDEAL_WANTED,
        ),
        Finding(
            cell=cell,
            what="decode share",
            temperature=temperature,
            ratio=RatioSpread(value=share, low=share, high=share),
        ),
    ]


def between(costs: RowCosts, rows: float) -> float:
    """Milliseconds for a mean number of rows, between the two whole counts around it."""
    low = int(rows)
    return costs(low) + (rows - low) * (costs(low + 1) - costs(low))
