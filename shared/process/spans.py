"""Spans: the services' reports of where time goes, independent of the exporter. Times are nanoseconds since 1970 by
this machine's clock."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

Attributes = Mapping[str, str | int | float | bool]
NO_ATTRIBUTES: Final[Attributes] = {}


class Span(Protocol):
    """A timed operation."""

    @property
    def traceparent(self) -> str:
        """The trace context for operations within it; empty without a trace."""

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        """End the span, now or at a given time, with attributes."""


class Tracer(Protocol):
    """Sends the spans of one process; leaving it sends the rest, within some seconds.

    Times are nanoseconds since 1970 by this machine's clock.
    """

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> Span:
        """Begin a span, now or at a given time, below its parent's `traceparent`. `serves`: it answers a client."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
