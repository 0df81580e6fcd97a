"""Who competes, and how: the same work in turn, request by request, so that a drift of the machine favours nobody."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from aiohttp import ClientSession

from bench.tasks import Author, Task
from bench.versus.completion import complete
from bench.versus.peers import PeerServer
from bench.versus.ratios import Key, Rounds
from bench.workload import TEMPERATURES
from services.launcher.clients.streaming import StreamedAnswer, stream

OURS: Final = "draftmesh"
OURS_PLAIN: Final = "draftmesh plain"

_ENOUGH_TOKENS: Final = 8
_WARM_UP_TOKENS: Final = 8

Work = tuple[Task, ...]  # what is asked at once: one request, or several together


class Contestant(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str: ...

    async def ask(self, task: Task) -> StreamedAnswer: ...


class Fleet(Protocol):
    """A fleet of ours that runs, and a session with its gateway."""

    http: ClientSession


@dataclass(frozen=True, slots=True)
class Ours:
    """draftmesh through its gateway."""

    fleet: Fleet
    speculative: bool | str = "auto"
    name: str = OURS

    async def ask(self, task: Task) -> StreamedAnswer:
        """Stream an answer. Raises `RuntimeError` if the gateway made another prompt than the peers get."""
        answer = await stream(self.fleet.http, task.body(self.speculative))
        if answer.prompt_tokens != len(task.prompt):
            raise RuntimeError(
                f"the gateway made {answer.prompt_tokens} prompt tokens of {task.name!r}, not {len(task.prompt)}:"
                " the peers would not do the same work"
            )
        return answer


@dataclass(frozen=True, slots=True)
class Theirs:
    """A peer through its completion route, or another one."""

    server: PeerServer
    stream: Callable[[ClientSession, Task], Awaitable[StreamedAnswer]] = complete

    @property
    def name(self) -> str:
        return self.server.setting.name

    async def ask(self, task: Task) -> StreamedAnswer:
        return await self.stream(self.server.http, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One work done by one contestant. Of a single request `tokens_per_second` is decode speed, prefill left out; of
    several at once it is their tokens over the time from the first request to the last token."""

    name: str
    key: Key
    tokens_per_second: float
    first_token_s: float
    tokens: tuple[tuple[int, ...], ...]  # per request
    statistics: tuple[dict[str, Any], ...]


@dataclass(slots=True)
class Runs:
    """Everything that was measured so far, in order."""

    all: list[Run] = field(default_factory=list)

    def speeds(self, name: str) -> dict[Key, float]:
        """By work and repetition; an answer that ended after a few tokens says nothing about speed."""
        return {
            run.key: run.tokens_per_second
            for run in self.all
            if run.name == name and min(map(len, run.tokens)) >= _ENOUGH_TOKENS
        }

    def rounds(self, name: str) -> Rounds | None:
        """Our rounds after each answer's first token, or None if there were none."""
        mine = [run for run in self.all if run.name == name]
        statistics = [one for run in mine for one in run.statistics]
        rounds = sum(int(one.get("rounds") or 0) - 1 for one in statistics)
        if rounds <= 0:
            return None
        return Rounds(
            rounds=rounds,
            tokens=sum(len(tokens) - 1 for run in mine for tokens in run.tokens),
            drafted=sum(int(one.get("drafted") or 0) for one in statistics),
        )


async def do(contestant: Contestant, work: Work, repetition: int) -> Run:
    """Have one work done."""
    tasks = [task.seeded(repetition) for task in work]
    answers = await asyncio.gather(*(contestant.ask(task) for task in tasks))
    speed = answers[0].tokens_per_second if len(answers) == 1 else _aggregate(answers)
    return Run(
        name=contestant.name,
        key=("+".join(task.name for task in tasks), repetition),
        tokens_per_second=speed,
        first_token_s=max(answer.first_token_s for answer in answers),
        tokens=tuple(tuple(answer.tokens) for answer in answers),
        statistics=tuple(answer.statistics for answer in answers),
    )


def _aggregate(answers: Sequence[StreamedAnswer]) -> float:
    ends = [answer.arrivals[-1][0] for answer in answers if answer.arrivals]
    took = max(ends) - min(answer.started for answer in answers) if ends else 0.0
    return sum(len(answer.tokens) for answer in answers) / took if took > 0 else 0.0


def turns(works: Sequence[Work], repetition: int, each: int) -> list[Work]:
    """The works of one repetition: all, or `each` of them, different ones every time until all had their turn."""
    return [works[(repetition * each + index) % len(works)] for index in range(each or len(works))]


async def compete(
    contestants: Sequence[Contestant],
    works: Sequence[Work],
    repetitions: int,
    step: Callable[[str], object],
    each: int = 0,
) -> Runs:
    """Every work by every contestant in turn; odd repetitions go backwards. `step` gets the name after each.

    With `each` a repetition does only so many works, and the next one those that follow, from the first again.
    """
    runs = Runs()
    for repetition in range(repetitions):
        order = contestants if repetition % 2 == 0 else contestants[::-1]
        for work in turns(works, repetition, each):
            for contestant in order:
                runs.all.append(await do(contestant, work, repetition))
                step(contestant.name)
    return runs


async def warm_up(contestants: Iterable[Contestant], work: Work) -> None:
    """A short answer of each that is not measured: it maps files in and lets calibration see a first few drafts."""
    for contestant in contestants:
        await contestant.ask(warming(work))


def warming(work: Work) -> Task:
    """What is asked to warm up."""
    return replace(work[0], tokens=min(_WARM_UP_TOKENS, work[0].tokens), seed=99)


def works(
    model: Path,
    texts: dict[str, str],
    tokens: int,
    temperatures: Iterable[float] = TEMPERATURES,
    *,
    together: bool = False,
) -> dict[float, list[Work]]:
    """What is asked at each temperature: every text by itself, or all of them `together`, under the law of `model`."""
    with closing(Author(model)) as author:
        tasks = {at: author.tasks(texts, temperature=at, tokens=tokens) for at in temperatures}
    return {at: [tuple(some)] if together else [(task,) for task in some] for at, some in tasks.items()}
