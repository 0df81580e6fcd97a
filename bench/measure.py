"""Runs every configuration over the same requests, in turn, and keeps each request's numbers as a `Sample`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.processes import cpu_s
from bench.raw import Raw
from bench.tasks import Task
from bench.workload import requests, warm_up
from services.launcher.clients.streaming import stream
from services.launcher.fleet.child import Child
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair
from shared.fleet.registry import HEARTBEAT_S

RAW, PLAIN, LOOKUP, DRAFT_8BIT, DRAFT_4BIT = CONFIGURATIONS = ("raw", "plain", "lookup", "8-bit", "4-bit")

# What is compared closest takes turns request by request, since a virtual machine's speed drifts within minutes.
BLOCKS: Final = ((RAW, PLAIN, DRAFT_8BIT), (LOOKUP,), (DRAFT_4BIT,))

_WARM_UP: Final = warm_up()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request under one configuration. `tokens` ends before an end-of-generation token."""

    configuration: str
    prompt: str
    temperature: float
    repetition: int
    tokens: tuple[int, ...]
    tokens_per_second: float
    first_token_s: float  # of the raw loop: its prefill and first draw
    statistics: dict[str, Any]  # the gateway's `speculative`, empty for the raw loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Microseconds of one request that the verifier was busy, of those inside llama_decode, and of CPU time
    that its process got: much less than busy means that something else ran on its core."""

    configuration: str
    temperature: float
    decode_us: int
    busy_us: int
    cpu_us: int


@dataclass(slots=True)
class Measured:
    """Everything that was measured; memory is in bytes, the highest seen."""

    samples: list[Sample] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)

    def saw_memory(self, name: str, pid: int) -> None:
        usage = self.memory.setdefault(name, {})
        for kind, value in memory(pid).items():
            usage[kind] = max(usage.get(kind, 0), value)


class Bench:
    """The configurations over one fleet and one raw loop; the target stays loaded throughout."""

    def __init__(
        self, stack: Stack, raw: Raw, pair: Pair, prompts: dict[str, tuple[int, ...]], step: Callable[[str], None]
    ) -> None:
        """`step` is called with the configuration's name after each request."""
        self._stack, self._raw, self._pair, self._prompts, self._step = stack, raw, pair, prompts, step
        self.measured = Measured()
        self._counted: dict[str, int] = {}  # after the latest request that was measured

    async def repeat(self, repetition: int, tokens: int) -> None:
        """Every configuration once. Odd repetitions go backwards, so that a drift of the machine favours nobody."""
        work = requests(repetition, tokens)
        for block in BLOCKS if repetition % 2 == 0 else BLOCKS[::-1]:
            await self._block(block if repetition % 2 == 0 else block[::-1], repetition, work)

    async def _ask_raw(self, request: Task) -> dict[str, Any]:
        return await self._raw.ask(
            {
                "prompt": self._prompts[request.name],
                "seed": request.seed,
                "temperature": request.temperature,
                "tokens": request.tokens,
            }
        )

    async def _block(self, names: tuple[str, ...], repetition: int, work: list[Task]) -> None:
        """Each request under each of `names` in turn, with the drafter that one of them needs running throughout."""
        drafter = await self._start(names)
        try:
            for name in names:
                await self._warm_up(name)
            self._counted = await self._counters()
            for request in work:
                for name in names:
                    await self._measure(name, repetition, request)
            self.measured.saw_memory("gateway", self._stack.gateway.pid)
            self.measured.saw_memory("verifier", self._stack.verifier.pid)
            if drafter is not None:
                self.measured.saw_memory(f"{names[0] if len(names) == 1 else DRAFT_8BIT} drafter", drafter.pid)
        finally:
            if drafter is not None:
                await self._stack.stop_drafter(drafter)

    async def _warm_up(self, name: str) -> None:
        if name == RAW:
            await self._ask_raw(_WARM_UP)
        else:
            await stream(self._stack.http, _WARM_UP.body(_speculative(name)))

    async def _measure(self, name: str, repetition: int, request: Task) -> None:
        if name == RAW:
            answer = await self._ask_raw(request)
            tokens: list[int] = answer["tokens"]
            self._add(RAW, repetition, request, tokens, (len(tokens) - 1) / answer["decode_s"], answer["prefill_s"], {})
            return
        await self._ask(name, repetition, request)
        before, self._counted = self._counted, await self._counters()
        spent = {key: self._counted.get(key, 0) - before.get(key, 0) for key in ("decode_us", "busy_us", "cpu_us")}
        self.measured.shares.append(Share(configuration=name, temperature=request.temperature, **spent))

    async def _start(self, names: tuple[str, ...]) -> Child | None:
        models: dict[str, Path | None] = {
            LOOKUP: None,
            DRAFT_8BIT: self._pair.draft_8bit,
            DRAFT_4BIT: self._pair.draft_4bit,
        }
        [needed] = [name for name in names if name in models]
        return await self._stack.start_drafter(models[needed])

    async def _ask(self, name: str, repetition: int, request: Task) -> None:
        answer = await stream(self._stack.http, request.body(_speculative(name)))
        expected = len(self._prompts[request.name])
        if answer.prompt_tokens != expected:
            raise RuntimeError(
                f"the gateway made {answer.prompt_tokens} prompt tokens of {request.name!r}, the raw loop {expected}:"
                " they would not do the same work"
            )
        self._add(
            name,
            repetition,
            request,
            answer.tokens,
            answer.tokens_per_second,
            answer.first_token_s,
            answer.statistics,
        )

    def _add(
        self,
        name: str,
        repetition: int,
        request: Task,
        tokens: list[int],
        speed: float,
        first_token_s: float,
        statistics: dict[str, Any],
    ) -> None:
        text = tokens[:-1] if tokens and tokens[-1] in self._raw.eog else tokens
        self.measured.samples.append(
            Sample(
                configuration=name,
                prompt=request.name,
                temperature=request.temperature,
                repetition=repetition,
                tokens=tuple(text),
                tokens_per_second=speed,
                first_token_s=first_token_s,
                statistics=statistics,
            )
        )
        self._step(name)

    async def _counters(self) -> dict[str, int]:
        """The verifier's counters after a heartbeat that follows the last answer, and its process's CPU time."""
        await asyncio.sleep(HEARTBEAT_S + 0.3)
        card = await self._stack.verifier_card()
        return {**(card.counters if card else {}), "cpu_us": round(1e6 * cpu_s(self._stack.verifier.pid))}


def _speculative(name: str) -> bool | str:
    return False if name == PLAIN else "auto"


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process now, at its highest, and proportionally (`pss`); empty where /proc is not."""
    found = {}
    for file, wanted in (("status", {"VmRSS": "rss", "VmHWM": "peak_rss"}), ("smaps_rollup", {"Pss": "pss"})):
        try:
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in wanted:
                found[wanted[name]] = int(rest.split()[0]) * 1024
    return found
