"""Which requests are sent and in which order, the same for all servers; decided before the first one is sent. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.launcher.bench.workloads import Messages, Workload, conversation, prompts


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """A combination of settings, reported as one line per server."""

    workload: Workload
    temperature: float
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request; `prompt` and `step` say which one of its workload it is."""

    prompt: int
    step: int
    messages: Messages = field(repr=False)
    twin: Messages = field(repr=False)  # the same under another label, for a server that has seen `messages`
    temperature: float
    seed: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """As many conversations as the cell has at once. One server gets all of them before the next server does."""

    cell: Cell
    repetition: int
    conversations: tuple[tuple[PlannedRequest, ...], ...]

    @property
    def requests(self) -> int:
        return sum(len(conversation) for conversation in self.conversations)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """What the user asked for."""

    workloads: tuple[Workload, ...]
    concurrencies: tuple[int, ...]
    temperatures: tuple[float, ...]
    tokens: int
    repeat: int
    seed: int

    @property
    def cells(self) -> list[Cell]:
        return [
            Cell(workload=workload, temperature=temperature, concurrency=concurrency)
            for concurrency in self.concurrencies
            for workload in self.workloads
            for temperature in self.temperatures
        ]


def turns(settings: BenchSettings) -> list[PlannedTurn]:
    """All turns. A repetition holds every cell once, so that a drift of the machine falls on all of them alike."""
    return [_turn(cell, repetition, settings) for repetition in range(settings.repeat) for cell in settings.cells]


def warm_up(settings: BenchSettings, tokens: int = 16) -> PlannedTurn:
    """Short requests that make a server load, allocate and compile; their figures are not counted."""
    most = max(settings.concurrencies)
    cell = Cell(workload=settings.workloads[0], temperature=settings.temperatures[0], concurrency=most)
    turn = _turn(cell, -1, settings, tokens)
    return PlannedTurn(cell=cell, repetition=-1, conversations=tuple(one[:1] for one in turn.conversations))


def order(servers: Sequence[int], repetition: int) -> list[int]:
    """The order of the servers: odd repetitions go backwards, so that no server always comes second."""
    return list(servers)[:: -1 if repetition % 2 else 1]


def _turn(cell: Cell, repetition: int, settings: BenchSettings, tokens: int | None = None) -> PlannedTurn:
    """Prompts rotate, so that repetitions see different ones, and conversations at once see all of them."""
    count = prompts(cell.workload)
    return PlannedTurn(
        cell=cell,
        repetition=repetition,
        conversations=tuple(
            _conversation(cell, (repetition * cell.concurrency + index) % count, (repetition, index), settings, tokens)
            for index in range(cell.concurrency)
        ),
    )


def _conversation(
    cell: Cell, prompt: int, place: tuple[int, int], settings: BenchSettings, tokens: int | None
) -> tuple[PlannedRequest, ...]:
    identity = f"{settings.seed} {cell.workload} {cell.temperature!r} {cell.concurrency} {place}"
    digest = hashlib.sha256(identity.encode()).digest()
    labels = (digest[:8].hex(), digest[12:20].hex())
    return tuple(
        PlannedRequest(
            prompt=prompt,
            step=step,
            messages=messages,
            twin=twin,
            temperature=cell.temperature,
            seed=int.from_bytes(digest[8:12]) >> 1,  # 31 bits: some servers accept no larger seed
            tokens=tokens or settings.tokens,
        )
        for step, (messages, twin) in enumerate(
            zip(*(conversation(cell.workload, prompt, label) for label in labels), strict=True)
        )
    )
