"""What services tell of where time goes, whoever listens. Times are nanoseconds since 1970 by this machine's clock."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

Attributes = Mapping[str, str | int | float | bool]
NO_ATTRIBUTES: Final[Attributes] = {}


class Span(Protocol):
    """Something that takes time."""

    @property
    def traceparent(self) -> str:
        """For what happens within it; empty where there is no trace."""

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        """It ended, now or then, with what is known by now."""


class Tracer(Protocol):
    """Tells the spans of one process; leaving it sends what is left, for some seconds at most.

    Times are nanoseconds since 1970 by this machine's clock.
    """

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> Span:
        """Begin a span, now or then, below the `traceparent` of its parent. `serves`: it answers a client."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
