"""Cells that compare draftmesh with itself: a distant drafter with a near one, and useless drafts with none."""

import sys
from collections.abc import Mapping
from typing import Final

from bench.delay import DelayingProxy
from bench.tasks import QUESTIONS, Author
from bench.versus.contest import OURS, OURS_PLAIN, Contestant, Ours, Runs, Work, compete, do, turns
from bench.versus.ratios import mean, ratio
from bench.versus.results import CellResult, Finding
from bench.versus.setup import Setup, warm_up
from bench.workload import TEMPERATURES
from services.launcher.fleet.stack import Stack

DELAYS_MS: Final[Mapping[float, float]] = {20.0: 0.9, 60.0: 0.75}  # round trip, and the ratio that is wanted
NOT_SLOWER: Final = 0.97


async def delay(setup: Setup, cell: str) -> CellResult:
    """Speed with the 8-bit drafter behind a line of 20 and 60 ms round trip, as a ratio to the same line without delay.

    One drafter behind one proxy serves all, and the delay changes between requests, so that they alternate closely.
    """
    result = CellResult()
    works = _works(setup)
    async with setup.stack(setup.pair.target) as stack:
        port = int(stack.redis.rpartition(":")[2].partition("/")[0])
        async with DelayingProxy(port) as proxy:
            await stack.start_drafter(setup.pair.draft_8bit, redis=stack.redis.replace(f":{port}/", f":{proxy.port}/"))
            for temperature, some in works.items():
                runs = Runs()
                ours = {delay_ms: Ours(stack, name=f"{delay_ms:g} ms") for delay_ms in (0.0, *DELAYS_MS)}
                await warm_up(ours[0.0], some[0])
                for repetition in range(setup.repetitions):
                    for work in turns(some, repetition, each=1):
                        for delay_ms, contestant in ours.items() if repetition % 2 == 0 else [*ours.items()][::-1]:
                            proxy.round_trip_ms = delay_ms
                            runs.all.append(await do(contestant, work, repetition))
                            setup.step(contestant.name)
                proxy.round_trip_ms = 0.0
                result.runs += runs.all
                result.findings += [
                    Finding(
                        cell=cell,
                        what=f"{delay_ms:g} ms round trip",
                        temperature=temperature,
                        ours=mean(runs.speeds(ours[delay_ms].name)),
                        theirs=mean(runs.speeds(ours[0.0].name)),
                        opponent="no delay",
                        ratio=ratio(runs.speeds(ours[delay_ms].name), runs.speeds(ours[0.0].name)),
                        wanted=wanted,
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


async def _auto_or_not(setup: Setup, cell: str, what: str, stack: Stack, result: CellResult) -> None:
    for temperature, works in _works(setup).items():
        runs = Runs()
        contestants: list[Contestant] = [Ours(stack), Ours(stack, speculative=False, name=OURS_PLAIN)]
        for contestant in contestants:
            await warm_up(contestant, works[0])
        await compete(contestants, works, setup.repetitions, setup.step, runs, each=1)
        result.runs += runs.all
        result.findings.append(
            Finding(
                cell=cell,
                what=what,
                temperature=temperature,
                ours=mean(runs.speeds(OURS)),
                theirs=mean(runs.speeds(OURS_PLAIN)),
                opponent="speculative: false",
                ratio=ratio(runs.speeds(OURS), runs.speeds(OURS_PLAIN)),
                wanted=NOT_SLOWER,
            )
        )


def _works(setup: Setup) -> dict[float, list[Work]]:
    author = Author(setup.pair.draft_4bit)
    works: dict[float, list[Work]] = {
        temperature: [(task,) for task in author.tasks(QUESTIONS, temperature=temperature, tokens=setup.tokens)]
        for temperature in TEMPERATURES
    }
    author.close()
    return works
