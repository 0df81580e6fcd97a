"""Runs every configuration over the same requests, in turn, and keeps each request's numbers as a `Sample`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.processes import cpu_s, memory
from bench.raw import Raw
from bench.tasks import Task
from bench.versus.contest import Contestant, Ours
from bench.workload import requests, warm_up
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair
from shared.model import model_files, weights_read
from shared.model.weights_read import BandwidthUse

RAW, PLAIN, LOOKUP, DRAFT_8BIT, DRAFT_4BIT = CONFIGURATIONS = (Raw.name, "plain", "lookup", "8-bit", "4-bit")

# What is compared closest takes turns request by request, since a virtual machine's speed drifts within minutes.
BLOCKS: Final = ((RAW, PLAIN, DRAFT_8BIT), (LOOKUP,), (DRAFT_4BIT,))


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
    # Microseconds that the verifier was busy, those inside llama_decode, and its process's CPU time, by `busy_us`,
    # `decode_us` and `cpu_us`; empty for the raw loop. Much less CPU time than busy: something else ran on its core.
    spent: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Measured:
    """Everything that was measured; memory is in bytes, the highest seen."""

    reading: BandwidthUse
    samples: list[Sample] = field(default_factory=list)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)

    def saw_memory(self, name: str, pid: int) -> None:
        usage = self.memory.setdefault(name, {})
        for kind, value in memory(pid).items():
            usage[kind] = max(usage.get(kind, 0), value)


class Bench:
    """The configurations over one fleet and one raw loop; the target stays loaded throughout."""

    def __init__(
        self, stack: Stack, raw: Raw, pair: Pair, prompts: Mapping[str, tuple[int, ...]], step: Callable[[str], None]
    ) -> None:
        """`step` is called with the configuration's name after each request."""
        self._stack, self._raw, self._prompts, self._step = stack, raw, prompts, step
        self._drafts = {LOOKUP: None, DRAFT_8BIT: pair.draft_8bit, DRAFT_4BIT: pair.draft_4bit}
        self._contestants: dict[str, Contestant] = {
            name: Ours(stack, False if name == PLAIN else "auto", name) for name in CONFIGURATIONS
        }
        self._contestants[RAW] = raw
        weights = weights_read.per_token(model_files.headers(pair.target))
        self.measured = Measured(BandwidthUse(weights=weights, bandwidth=raw.bandwidth, threads=1))
        self._counted: dict[str, int] = {}  # after the latest request that was measured

    async def repeat(self, repetition: int, tokens: int) -> None:
        """Every configuration once. Odd repetitions go backwards, so that a drift of the machine favours nobody."""
        work = requests(repetition, tokens, self._prompts)
        order = -1 if repetition % 2 else 1
        for block in BLOCKS[::order]:
            await self._block(block[::order], repetition, work)

    async def _block(self, names: tuple[str, ...], repetition: int, work: list[Task]) -> None:
        """Each request under each of `names` in turn, with the drafter that one of them needs running throughout."""
        [drafted] = [name for name in names if name in self._drafts]
        drafter = await self._stack.start_drafter(self._drafts[drafted])
        try:
            for name in names:
                await self._contestants[name].ask(warm_up(self._prompts))
            self._counted = await self._counters()
            for request in work:
                for name in names:
                    await self._measure(name, repetition, request)
            processes = {
                "gateway": self._stack.gateway,
                "verifier": self._stack.verifier,
                f"{drafted} drafter": drafter,
            }
            for process, child in processes.items():
                self.measured.saw_memory(process, child.pid)
        finally:
            await self._stack.stop_drafter(drafter)

    async def _measure(self, name: str, repetition: int, request: Task) -> None:
        answer = await self._contestants[name].ask(request)
        before = self._counted
        spent: dict[str, int] = {}
        if name != RAW:
            self._counted = await self._counters()
            spent = {key: self._counted[key] - before[key] for key in ("decode_us", "busy_us", "cpu_us")}
        ended = answer.tokens and answer.tokens[-1] in self._raw.eog
        self.measured.samples.append(
            Sample(
                configuration=name,
                prompt=request.name,
                temperature=request.temperature,
                repetition=repetition,
                tokens=tuple(answer.tokens[:-1] if ended else answer.tokens),
                tokens_per_second=answer.tokens_per_second,
                first_token_s=answer.first_token_s,
                statistics=answer.statistics,
                spent=spent,
            )
        )
        self._step(name)

    async def _counters(self) -> dict[str, int]:
        """The verifier's counters after its last answer, and its process's CPU time."""
        card = await self._stack.settled_card()
        return {**card.counters, "cpu_us": round(1e6 * cpu_s(self._stack.verifier.pid))}
