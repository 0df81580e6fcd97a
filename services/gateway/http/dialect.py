"""What an HTTP dialect provides: a parsed request, and an answer as events. No HTTP in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from services.gateway.errors import ApiError
from services.gateway.generation.choice import Event
from services.gateway.generation.preparation import Prepared
from services.gateway.generation.usage import UsageTally
from services.gateway.requests.types import GenerationRequest
from services.gateway.storage.stores import Stores

Told = TypeVar("Told")  # an event of a stream in the dialect's words, as far as possible the object that clients read


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The values that stay the same through one response."""

    id: str  # hexadecimal; dialects put their prefix before it
    created: int  # unix seconds
    prepared: Prepared


class Answer(Protocol[Told]):
    """An answer in a dialect's words.

    `begin`, `take` for each event and `end` tell the events of a stream, in order. A stream sends the `frame` of each
    as it comes; instead of `end` it may `fail`, and a `ping` may come at any time after `begin`, so that clients go on
    waiting. An answer that is not streamed is `whole`: what the same events add up to.
    """

    def begin(self) -> list[Told]: ...
    def take(self, event: Event) -> list[Told]: ...
    def end(self) -> list[Told]: ...
    def frame(self, told: Told) -> bytes: ...
    def fail(self, error: ApiError) -> bytes: ...
    def ping(self) -> bytes: ...
    def whole(self, told: Sequence[Told]) -> dict[str, object]: ...


def whole(answer: Answer[Told], events: Sequence[Event]) -> dict[str, object]:
    """The whole answer to all of these events."""
    told = [*answer.begin(), *(one for event in events for one in answer.take(event)), *answer.end()]
    return answer.whole(told)


class Exchange:
    """A checked request of some dialect, and its answer. Refers to nothing and stores nothing, unless a dialect does.

    `warnings` say what the request asks for and the answer will lack, one line each.
    """

    streaming: bool
    warnings: Sequence[str] = ()

    def generation(self) -> GenerationRequest:
        raise NotImplementedError

    def answer(self, identity: Identity, usage: UsageTally) -> Answer[Any]:
        """`usage` has counted every event before the answer takes it."""
        raise NotImplementedError

    async def resolve(self, stores: Stores) -> None:
        """Fetch what the request refers to. Call it before `generation`. Raises `ApiError`."""

    async def keep(self, stores: Stores) -> None:
        """Store what later requests may refer to. Call it once the answer is complete, before its end is sent."""


class RequestBody(Protocol):
    """What every checked body tells."""

    @property
    def stream(self) -> bool: ...
    def generation(self) -> GenerationRequest: ...


B = TypeVar("B", bound=RequestBody)


class StatelessExchange(Exchange, Generic[B]):
    """An exchange that its body describes."""

    def __init__(
        self, body: B, answer: Callable[[B, Identity, UsageTally], Answer[Any]], warnings: Sequence[str] = ()
    ) -> None:
        self.body = body
        self.streaming = body.stream
        self.warnings = warnings
        self._answer = answer

    def generation(self) -> GenerationRequest:
        return self.body.generation()

    def answer(self, identity: Identity, usage: UsageTally) -> Answer[Any]:
        return self._answer(self.body, identity, usage)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One HTTP API: how it reads requests, and the content type of its streams."""

    parse: Callable[[bytes], Exchange]  # raises `ApiError`
    content_type: str = "text/event-stream; charset=utf-8"
