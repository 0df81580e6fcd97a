"""What an HTTP dialect provides: a parsed request, frames for a stream, an object for a whole answer. No HTTP in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.gateway.errors import ApiError
from services.gateway.generation.choice import Event
from services.gateway.generation.preparation import Prepared
from services.gateway.requests.types import GenerationRequest
from services.gateway.storage.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The values that stay the same through one response."""

    id: str  # hexadecimal; dialects put their prefix before it
    created: int  # unix seconds
    prepared: Prepared


class Framing(Protocol):
    """A stream as frames, in order: `begin`, `frames` for each batch of events, then `end` or `fail`.

    `ping` makes this dialect's clients go on waiting; it may come at any time after `begin`.
    """

    def begin(self) -> list[bytes]: ...
    def frames(self, events: Sequence[Event]) -> list[bytes]: ...
    def end(self) -> list[bytes]: ...
    def fail(self, error: ApiError) -> list[bytes]: ...
    def ping(self) -> bytes: ...


class Collector(Protocol):
    """A whole answer: take every batch of events, then make the object."""

    def take(self, events: Sequence[Event]) -> None: ...
    def body(self) -> dict[str, object]: ...


class Exchange(Protocol):
    """A checked request of some dialect, with the two forms that its answer can have."""

    @property
    def streaming(self) -> bool: ...
    @property
    def warnings(self) -> Sequence[str]:
        """What the request asks for and the answer will lack, one line each."""

    def generation(self) -> GenerationRequest: ...
    def framing(self, identity: Identity) -> Framing: ...
    def collector(self, identity: Identity) -> Collector: ...
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


class StatelessExchange(Generic[B]):
    """An exchange that refers to nothing and stores nothing."""

    def __init__(
        self,
        body: B,
        framing: Callable[[B, Identity], Framing],
        collector: Callable[[B, Identity], Collector],
        warnings: Sequence[str] = (),
    ) -> None:
        self.body = body
        self.warnings = warnings
        self._framing = framing
        self._collector = collector

    @property
    def streaming(self) -> bool:
        return self.body.stream

    def generation(self) -> GenerationRequest:
        return self.body.generation()

    def framing(self, identity: Identity) -> Framing:
        return self._framing(self.body, identity)

    def collector(self, identity: Identity) -> Collector:
        return self._collector(self.body, identity)

    async def resolve(self, stores: Stores) -> None:
        pass

    async def keep(self, stores: Stores) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One HTTP API: how it reads requests, and the content type of its streams."""

    parse: Callable[[bytes], Exchange]  # raises `ApiError`
    content_type: str = "text/event-stream; charset=utf-8"
