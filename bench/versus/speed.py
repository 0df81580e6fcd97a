"""Cells about decode speed: one request with each draft, and four at once, against the best peer setting.

The fraction of the ideal compares what a client saw with E/v(rows): the tokens per round that our drafts reached, over
the measured time of a decode of that many rows, as if rounds followed each other without a gap. The decode share is
the part of the verifier's busy time inside llama_decode, prefill included.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.tasks import QUESTIONS, prompts
from bench.versus.contest import OURS, Contestant, Fleet, Ours, Runs, Work, works
from bench.versus.peers import PeerSetting, draft_settings
from bench.versus.ratios import alone
from bench.versus.results import CellResult, Finding, compared, of_the_ideal
from bench.versus.setup import AUDITION_PROMPTS, AUDITION_TOKENS, Setup, meet, opponent, winners
from shared.law.speedup import RowCosts
from shared.wire.messages import VerifierCard

Wanted = Mapping[float, float | None]  # the ratio to reach by temperature; None: it is only told


async def one_request(setup: Setup, cell: str, draft: Path, wanted: Wanted) -> CellResult:
    """Decode speed of one request at each temperature, against the best setting of each peer."""
    work = works(setup.pair.draft_4bit, prompts(setup.prompts), setup.tokens)
    return await _fastest(setup, cell, draft, work, wanted)


async def four(setup: Setup, cell: str, wanted: Wanted) -> CellResult:
    """Tokens per second of four requests together, prefill included, against the best setting of each peer."""
    work = works(setup.pair.draft_4bit, QUESTIONS, setup.tokens, together=True)
    return await _fastest(setup, cell, setup.pair.draft_8bit, work, wanted, slots=len(QUESTIONS))


async def one_machine(setup: Setup, cell: str, draft: Path, wanted: Wanted) -> CellResult:
    """Decode speed of one request where all cores are there for target and draft, against the best of each peer.

    Each peer gets as many threads as there are cores for either model; we choose ourselves, as `draftmesh up` does.
    """
    work = works(setup.pair.draft_4bit, prompts(setup.prompts), setup.tokens)
    result = CellResult()
    chosen = await _choose(setup, draft, work, result, threads=len(setup.cores))
    async with setup.typed(setup.pair.target, draft) as typed:
        for temperature, settings in chosen.items():
            await _contest(setup, cell, temperature, settings, typed, work, wanted, result)
    return result


async def _fastest(
    setup: Setup, cell: str, draft: Path, work: Mapping[float, list[Work]], wanted: Wanted, slots: int = 1
) -> CellResult:
    result = CellResult()
    chosen = await _choose(setup, draft, work, result, slots)
    async with setup.stack(setup.pair.target, parallel=slots) as stack:
        await stack.start_drafter(draft)
        for temperature, settings in chosen.items():
            before = await stack.settled_card()
            runs = await _contest(setup, cell, temperature, settings, stack, work, wanted, result, slots)
            if slots == 1:
                result.findings += _ideal(cell, temperature, runs, before, await stack.settled_card())
    return result


async def _contest(
    setup: Setup,
    cell: str,
    temperature: float,
    settings: list[PeerSetting],
    fleet: Fleet,
    work: Mapping[float, list[Work]],
    wanted: Wanted,
    result: CellResult,
    slots: int = 1,
) -> Runs:
    """Ours and the chosen peers in turn at one temperature; what is found goes into `result`."""
    async with setup.opponents(settings, setup.pair.target, slots=slots) as theirs:
        contestants: list[Contestant] = [Ours(fleet), *theirs]
        runs = await meet(setup, contestants, work[temperature])
    names = [setting.name for setting in settings]
    result.findings += against(cell, "peer", temperature, runs, names, wanted[temperature])
    result.runs += runs.all
    return runs


async def _choose(
    setup: Setup,
    draft: Path,
    works: Mapping[float, list[Work]],
    result: CellResult,
    slots: int = 1,
    threads: int = 1,
) -> dict[float, list[PeerSetting]]:
    """The settings that compete at each temperature: the first works, cut short, tell."""
    settings = [
        setting
        for engine in setup.binaries.engines
        for setting in draft_settings(engine, draft, threads)
        if _worth_trying(setup, setting, slots)
    ]
    tokens = min(setup.tokens, AUDITION_TOKENS // (1 if slots == 1 else 2))
    first = {
        temperature: [tuple(replace(task, tokens=tokens) for task in work) for work in some[:AUDITION_PROMPTS]]
        for temperature, some in works.items()
    }
    chosen = {}
    for temperature, speeds in (await setup.audition(settings, setup.pair.target, first, slots=slots)).items():
        chosen[temperature] = winners(speeds)
        result.auditions[f"T={temperature:g}"] = {setting.name: speed for setting, speed in speeds.items()}
    return chosen


def _worth_trying(setup: Setup, setting: PeerSetting, slots: int) -> bool:
    """Several requests take long together, and neither two drafts nor sixteen suit them."""
    if setup.quick:
        return setting.plain or setting.draft_max == 4
    return slots == 1 or setting.plain or setting.draft_max in (4, 8)


def against(
    cell: str, kind: str, temperature: float, runs: Runs, names: list[str], wanted: float | None
) -> list[Finding]:
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
