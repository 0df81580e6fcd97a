"""Spans: the services' reports of where time goes. These go nowhere; `otel` sends them.

Times are nanoseconds since 1970 by this machine's clock.
"""

from collections.abc import Mapping
from typing import Final, Self

Attributes = Mapping[str, str | int | float | bool]
NO_ATTRIBUTES: Final[Attributes] = {}


class Span:
    """A timed operation. `traceparent` is the trace context for operations within it; empty without a trace."""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        """End the span, now or at a given time, with attributes."""


class Tracer:
    """The spans of one process, which pass on the context that they got; leaving it sends the rest, within seconds."""

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> Span:
        """Begin a span, now or at a given time, below its parent's `traceparent`. `serves`: it answers a client."""
        return Span(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
