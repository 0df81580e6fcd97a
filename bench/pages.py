"""`python -m bench.pages`: what open pages cost. The same answers with and without them, in turn; one core per side.

A reader takes the page's stream as the page does and draws nothing: browsers run on their users' machines.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import aiohttp
import typer

from bench.processes import cpu_s
from bench.running import build, console, to_end
from bench.versus.ratios import Key, RatioSpread, mean, ratio
from services.launcher.clients.streaming import stream
from services.launcher.fleet.cores import one_each
from services.launcher.fleet.stack import Stack
from shared.settings import command_line

PROMPT: Final = "Explain to a child how a rainbow comes about, in a few paragraphs."
CTX: Final = 1024


def main(
    pages: Annotated[int, typer.Option(help="Open pages.", min=1, max=200)] = 10,
    repeat: Annotated[int, typer.Option(help="Pairs of answers.", min=1)] = 8,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=16, max=512)] = 160,
) -> None:
    """Print decode speed with pages open over that without, and what the gateway's processor did."""
    pair = build()
    engine, side = one_each()

    async def run() -> None:
        async with Stack(pair.target, engine_cores=engine, side_cores=side, ctx=CTX) as stack:
            await stack.start_drafter(pair.draft_8bit)
            await _measure(stack, pages, repeat, tokens)

    to_end(run())


async def _measure(stack: Stack, pages: int, repeat: int, tokens: int) -> None:
    await _speed(stack, 99, 16)  # maps files in
    speeds: dict[int, dict[Key, float]] = {0: {}, pages: {}}
    busy: dict[int, dict[Key, float]] = {0: {}, pages: {}}
    with console.status("") as status:
        for number in range(repeat):
            for open_pages in (0, pages) if number % 2 == 0 else (pages, 0):
                status.update(f"{open_pages} pages, pair {number + 1} of {repeat}")
                async with _looking(stack.url, open_pages):
                    began, before = asyncio.get_running_loop().time(), cpu_s(stack.gateway.pid)
                    speeds[open_pages]["rainbow", number] = await _speed(stack, number, tokens)
                    took_s = asyncio.get_running_loop().time() - began
                    busy[open_pages]["rainbow", number] = (cpu_s(stack.gateway.pid) - before) / took_s
    for open_pages in speeds:
        spread, share = mean(speeds[open_pages]), mean(busy[open_pages])
        console.print(f"{open_pages:3} pages: {_shown(spread)} tokens/s; the gateway took {share.value:.1%} of a core")
    console.print(f"with {pages} pages over without: {_shown(ratio(speeds[pages], speeds[0]), 3)}")


async def _speed(stack: Stack, seed: int, tokens: int) -> float:
    body = {"messages": [{"role": "user", "content": PROMPT}], "seed": seed, "max_tokens": tokens}
    return (await stream(stack.http, body)).tokens_per_second


@asynccontextmanager
async def _looking(url: str, pages: int) -> AsyncIterator[None]:
    """Readers of the stream, each with a connection of its own."""

    async def read(started: asyncio.Event) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/status/events") as response:
            async for _ in response.content.iter_any():
                started.set()

    events = [asyncio.Event() for _ in range(pages)]
    readers = [asyncio.create_task(read(event)) for event in events]
    try:
        await asyncio.gather(*(event.wait() for event in events))
        yield
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


def _shown(spread: RatioSpread, digits: int = 1) -> str:
    return f"{spread.value:.{digits}f} ({spread.low:.{digits}f}–{spread.high:.{digits}f})"


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.pages")
