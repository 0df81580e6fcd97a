"""What an HTTP dialect has to give: a parsed call, frames for a stream, an object for a whole answer. No HTTP in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.errors import ApiError
from services.gateway.generation import Event
from services.gateway.preparation import Prepared
from services.gateway.requests import GenerationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same through one response."""

    id: str  # hexadecimal; dialects put their prefix before it
    created: int  # unix seconds
    prepared: Prepared


class Framing(Protocol):
    """A stream as frames, in order: `begin`, `frames` for each batch of events, then `end` or `fail`."""

    def begin(self) -> list[bytes]: ...
    def frames(self, events: Sequence[Event]) -> list[bytes]: ...
    def end(self) -> list[bytes]: ...
    def fail(self, error: ApiError) -> list[bytes]: ...


class Collector(Protocol):
    """A whole answer: take every batch of events, then make the object."""

    def take(self, events: Sequence[Event]) -> None: ...
    def body(self) -> dict[str, object]: ...


class Call(Protocol):
    """A request of some dialect, checked."""

    @property
    def streaming(self) -> bool: ...
    def generation(self) -> GenerationRequest: ...
    def framing(self, identity: Identity) -> Framing: ...
    def collector(self, identity: Identity) -> Collector: ...
