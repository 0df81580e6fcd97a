"""`python -m bench.arrival`: what running streams lose while a long prompt arrives. One core per side.

Streams answer one short question after the other. A gap is the time between two chunks of one answer; it is compared
with gaps before the prompt arrived, in the same run.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import typer

from bench.running import build, console, to_end
from services.launcher.clients.streaming import StreamedAnswer, follow, stream
from services.launcher.fleet.cores import one_each
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import default_model
from shared.settings import command_line

CTX_BESIDE: Final = 512  # room for an answer, and for the template around the prompt
ANSWER: Final = 300  # tokens of one answer of a running stream
SETTLING_S: Final = 4.0
WORDS: Final = ("river", "stone", "market", "lantern", "winter", "tram", "keeper", "harbour", "bread", "letter")


@dataclass(slots=True)
class Running:
    """Streams that never end, and every gap between their chunks: when it ended, milliseconds, tokens behind it."""

    stack: Stack
    gaps: list[tuple[float, float, int]] = field(default_factory=list)

    async def stream(self, number: int) -> None:
        """Ask for one answer after the other, for ever."""
        for turn in count():
            text = f"Tell a long story about number {number}, part {turn}."
            body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "seed": 100 * number + turn}
            body |= {"max_tokens": ANSWER, "temperature": 0.0, "stream": True, "return_token_ids": True}
            before: float | None = None

            def take(now: float, event: dict[str, Any]) -> None:
                nonlocal before
                tokens = sum(len(choice.get("token_ids") or ()) for choice in event.get("choices", ()))
                if tokens and before is not None:
                    self.gaps.append((now, 1000 * (now - before), tokens))
                before = now if tokens else before

            await follow(self.stack.http, "/v1/chat/completions", body, take, clock=_clock)

    def between(self, began: float, ended: float) -> tuple[npt.NDArray[np.float64], float]:
        """The gaps that lie in there whole, in milliseconds, and tokens per second of all streams."""
        inside = [(ms, tokens) for now, ms, tokens in self.gaps if began <= now - ms / 1000 and now <= ended]
        tokens = sum(number for _, number in inside)
        return np.array([ms for ms, _ in inside] or [np.nan]), tokens / (ended - began)


def main(
    running: Annotated[int, typer.Option(help="Streams that run.", min=1, max=32)] = 3,
    prompt: Annotated[int, typer.Option(help="Words of the prompt that arrives.", min=1)] = 4000,
    seconds: Annotated[float, typer.Option(help="Seconds before it arrives.", min=1)] = 30,
    drafts: Annotated[
        bool, typer.Option("--drafts", help="Take the widened pair with its 8-bit draft, not the default model alone.")
    ] = False,
) -> None:
    """Print gaps and speed of running streams before a long prompt arrives and while it is read."""
    pair = build()
    engine, side = one_each()

    async def run() -> None:
        async with Stack(
            pair.target if drafts else default_model(),
            engine_cores=engine,
            side_cores=side,
            ctx=prompt + CTX_BESIDE,
            parallel=running + 1,
            exactness="auto",
        ) as stack:
            if drafts:
                await stack.start_drafter(pair.draft_8bit)
            await _measure(stack, running, prompt, seconds)

    to_end(run())


async def _measure(stack: Stack, running: int, prompt: int, seconds: float) -> None:
    streams = Running(stack)
    tasks = [asyncio.create_task(streams.stream(number)) for number in range(running)]
    try:
        with console.status("") as status:
            status.update(f"{running} streams run")
            await asyncio.sleep(SETTLING_S)
            began = _clock()
            await asyncio.sleep(seconds)
            arrived = _clock()
            status.update(f"{running} streams run, a prompt of {prompt} words is read")
            answer = await _until_read(stack, prompt, tasks)
            read = _clock()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    before, fast = streams.between(began, arrived)
    during, slow = streams.between(arrived, read)
    console.print(f"before: {_shown(before)}; {fast:.1f} tokens/s")
    console.print(f"while {answer.prompt_tokens} tokens are read: {_shown(during)}; {slow:.1f} tokens/s")
    growth = np.percentile(during, 99) / np.percentile(before, 99)
    console.print(f"p99 grew {growth:.2f} times, speed is {slow / fast:.2f} times; read in {read - arrived:.1f} s")


async def _until_read(stack: Stack, prompt: int, streams: list["asyncio.Task[None]"]) -> StreamedAnswer:
    text = " ".join(islice(cycle(WORDS), prompt))
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1, "cache_prompt": False}
    reading = asyncio.create_task(stream(stack.http, body))
    try:
        await asyncio.wait([reading, *streams], return_when=asyncio.FIRST_COMPLETED)
        for task in streams:
            if task.done():
                task.result()  # streams only end by an error
        return await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _shown(gaps: npt.NDArray[np.float64]) -> str:
    p50, p99 = np.percentile(gaps, (50, 99))
    return f"{len(gaps)} gaps, p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {gaps.max():.1f} ms"


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.arrival")
