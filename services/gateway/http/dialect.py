"""What an HTTP dialect has to give: a parsed call, frames for a stream, an object for a whole answer. No HTTP in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.errors import ApiError
from services.gateway.generation.choice import Event
from services.gateway.generation.preparation import Prepared
from services.gateway.requests.types import GenerationRequest
from services.gateway.storage.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same through one response."""

    id: str  # hexadecimal; dialects put their prefix before it
    created: int  # unix seconds
    prepared: Prepared


class Framing(Protocol):
    """A stream as frames, in order: `begin`, `frames` for each batch of events, then `end` or `fail`.

    `ping` is what keeps this dialect's clients waiting in silence, at any time after `begin`.
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


class Call(Protocol):
    """A request of some dialect, checked."""

    @property
    def streaming(self) -> bool: ...
    @property
    def warnings(self) -> Sequence[str]:
        """What the client asked for and does not get, a line each."""

    def generation(self) -> GenerationRequest: ...
    def framing(self, identity: Identity) -> Framing: ...
    def collector(self, identity: Identity) -> Collector: ...
    async def resolve(self, stores: Stores) -> None:
        """Fetch what the call refers to, before `generation`. Raises `ApiError`."""

    async def keep(self, stores: Stores) -> None:
        """The answer is complete: keep what later calls may refer to, before its last frame is sent."""


class StatelessCall:
    """A call that refers to nothing, leaves nothing behind and gets all that it asked for."""

    warnings: Sequence[str] = ()

    async def resolve(self, stores: Stores) -> None:
        pass

    async def keep(self, stores: Stores) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to speak: how calls are read, how errors look, and what a stream is called."""

    parse: Callable[[bytes], Call]  # raises `ApiError`
    content_type: str = "text/event-stream; charset=utf-8"
