"""The yardstick: a plain llama_decode loop over the same file, context and law, in a process with nothing else in it.

Reads one JSON request per line from standard input and answers each with one line; see `Raw` for the other end.
"""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from bench.tasks import Task
from services.launcher.clients.streaming import StreamedAnswer
from services.launcher.forecast.probe import drawn
from shared.machine.bandwidth import read_bandwidth
from shared.model.llama.context import Context
from shared.model.llama.fitness import Fitness, on_stderr
from shared.model.llama.model import Model
from shared.model.target import Target
from shared.wire.messages import Sampling


def answer(
    target: Target,
    eog: frozenset[int],
    request: dict[str, Any],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """The tokens of one request, an end-of-generation token included, and where the time went, in seconds."""
    sampling = Sampling(seed=request["seed"], temperature=request["temperature"])
    target.truncate(0, 0)
    started = clock()
    tokens: list[int] = []
    arrivals: list[float] = []
    for _, token in drawn(target, request["prompt"], sampling):
        tokens.append(token)
        arrivals.append(clock())
        if len(tokens) == request["tokens"] or token in eog:
            break
    return {"tokens": tokens, "prefill_s": arrivals[0] - started, "decode_s": arrivals[-1] - arrivals[0]}


class Raw:
    """The loop in a process of its own, for as long as the block lasts; it answers as a contestant does."""

    name = "raw"

    def __init__(self, model: Path, *, ctx: int, core: int) -> None:
        self._command = [sys.executable, "-m", "bench.raw", f"--model={model}", f"--ctx={ctx}", f"--core={core}"]
        self.eog: frozenset[int] = frozenset()
        self.bandwidth = 0.0  # bytes per second that its core reads; 0: not measured

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            limit=1 << 20,
            cwd=Path(__file__).parents[1],  # bench is no installed package
            start_new_session=True,  # the terminal's Ctrl-C is for us
        )
        told = await self._line()
        self.eog, self.bandwidth = frozenset(told["eog"]), told["bandwidth"]
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()  # it holds nothing that anyone would miss
        await self._process.wait()

    async def ask(self, task: Task) -> StreamedAnswer:
        """The answer to a task, as if it came in two chunks: its first token, and all the others."""
        request = {"prompt": task.prompt, "seed": task.seed, "temperature": task.temperature, "tokens": task.tokens}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        told = await self._line()
        first_s, tokens = told["prefill_s"], told["tokens"]
        arrivals = [(first_s, 1), (first_s + told["decode_s"], len(tokens) - 1)]
        return StreamedAnswer(started=0.0, arrivals=arrivals, tokens=tokens)

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the raw loop ended with status {await self._process.wait()}; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main(
    model: Annotated[Path, typer.Option()], ctx: Annotated[int, typer.Option()], core: Annotated[int, typer.Option()]
) -> None:
    """Serve requests from standard input until it ends. The context is the verifier's under exactness law."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    bandwidth = read_bandwidth(1)
    loaded = Model(model, extra_buffers=Fitness(on_stderr, on_stderr).extra_buffers(model))
    context = Context(loaded, n_ctx=ctx, sequences=1, unified=True, threads=1, max_outputs=1)
    eog = frozenset(loaded.vocabulary.eog)
    answer(context, eog, {"prompt": [0], "seed": 0, "temperature": 0.0, "tokens": 4})  # first decodes map the file in
    print(json.dumps({"eog": sorted(eog), "bandwidth": bandwidth}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(context, eog, json.loads(line))), flush=True)
    context.close()
    loaded.close()


if __name__ == "__main__":
    typer.run(main)
