"""Cells that compare draftmesh with itself: a distant drafter with a near one, and useless drafts with none."""

import sys
from collections.abc import Mapping
from typing import Final

from bench.delay import DelayingProxy
from bench.tasks import QUESTIONS
from bench.versus.contest import OURS, OURS_PLAIN, Ours, Runs, do, turns, warm_up, works
from bench.versus.results import CellResult, compared
from bench.versus.setup import Setup, meet
from services.launcher.fleet.stack import Stack

DELAYS_MS: Final[Mapping[float, float]] = {20.0: 0.9, 60.0: 0.75}  # round trip, and the ratio that is wanted
NOT_SLOWER: Final = 0.97


async def delay(setup: Setup, cell: str) -> CellResult:
    """Speed with the 8-bit drafter behind a line of 20 and 60 ms round trip, as a ratio to the same line without delay.

    One drafter behind one proxy serves all, and the delay changes between requests, so that they alternate closely.
    """
    result = CellResult()
    async with setup.stack(setup.pair.target) as stack:
        port = int(stack.redis.rpartition(":")[2].partition("/")[0])
        async with DelayingProxy(port) as proxy:
            await stack.start_drafter(setup.pair.draft_8bit, redis=stack.redis.replace(f":{port}/", f":{proxy.port}/"))
            for temperature, some in works(setup.pair.draft_4bit, QUESTIONS, setup.tokens).items():
                runs = Runs()
                ours = {delay_ms: Ours(stack, name=f"{delay_ms:g} ms") for delay_ms in (0.0, *DELAYS_MS)}
                await warm_up([ours[0.0]], some[0])
                for repetition in range(setup.repetitions):
                    for work in turns(some, repetition, each=1):
                        for delay_ms, contestant in ours.items() if repetition % 2 == 0 else [*ours.items()][::-1]:
                            proxy.round_trip_ms = delay_ms
                            runs.all.append(await do(contestant, work, repetition))
                            setup.step(contestant.name)
                proxy.round_trip_ms = 0.0
                result.runs += runs.all
                result.findings += [
                    compared(
                        cell,
                        f"{delay_ms:g} ms round trip",
                        temperature,
                        runs,
                        (ours[delay_ms].name, ours[0.0].name),
                        wanted,
                        "no delay",
                    )
                    for delay_ms, wanted in DELAYS_MS.items()
                ]
    return result


async def nopay(setup: Setup, cell: str) -> CellResult:
    """`speculative: auto` against `false` where drafts cannot pay: rows too dear, and guesses that are never right."""
    result = CellResult()
    async with setup.stack(setup.default_model, exactness="strict") as stack:
        await stack.start_drafter(setup.pair.draft_4bit)
        await _auto_or_not(setup, cell, "4-bit target, 4-bit draft", stack, result)
    async with setup.stack(setup.pair.target) as stack:
        await stack.start_drafter(setup.pair.draft_4bit, command=(sys.executable, "-m", "bench.random_drafter"))
        await _auto_or_not(setup, cell, "random guesses", stack, result)
    return result


async def no_gain(setup: Setup, cell: str) -> CellResult:
    """Speed on one machine beside a drafter that cannot pay, over that of a fleet that has none and all cores.

    The drafter is the target itself: it guesses right and costs as much as it saves. `speculative: false` tells what
    its mere presence costs, `auto` what it costs to find out.
    """
    result = CellResult()
    async with (
        setup.typed(setup.pair.target, None) as alone,
        setup.typed(setup.pair.target, setup.pair.target) as beside,
    ):
        plain = Ours(alone, speculative=False, name=OURS_PLAIN)
        ours = (Ours(beside, speculative=False, name="beside it, false"), Ours(beside, name="beside it, auto"))
        for temperature, some in works(setup.pair.draft_4bit, QUESTIONS, setup.tokens).items():
            runs = await meet(setup, [plain, *ours], some, each=1)
            result.runs += runs.all
            result.findings += [
                compared(cell, one.name, temperature, runs, (one.name, plain.name), NOT_SLOWER, "without a drafter")
                for one in ours
            ]
    return result


async def _auto_or_not(setup: Setup, cell: str, what: str, stack: Stack, result: CellResult) -> None:
    names = (OURS, OURS_PLAIN)
    for temperature, some in works(setup.pair.draft_4bit, QUESTIONS, setup.tokens).items():
        runs = await meet(setup, [Ours(stack), Ours(stack, speculative=False, name=OURS_PLAIN)], some, each=1)
        result.runs += runs.all
        result.findings.append(compared(cell, what, temperature, runs, names, NOT_SLOWER, "speculative: false"))
