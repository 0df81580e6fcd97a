"""Traces for OpenTelemetry, if they are switched on; otherwise none of it is imported.

A trace begins with a client's `traceparent` (W3C Trace Context), or in the gateway, and continues in `Job.traceparent`.
With traces off, a client's `traceparent` is still passed on, so that tracing services can attach their spans to it.
"""

import re
from types import TracebackType
from typing import Final, Self

from shared.errors import StartError
from shared.process.spans import NO_ATTRIBUTES, Attributes, Span, Tracer
from shared.settings.options import Traces

# Later versions may append fields; we drop them, as the specification allows.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|$)")


class _UnsentSpan:
    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        pass


class NoTracer:
    """Sends nothing; its spans pass on the context that they got."""

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> Span:
        return _UnsentSpan(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def tracer(traces: Traces, service: str, instance: str) -> Tracer:
    """The tracer of a service's process. Raises `StartError` if traces are on and OpenTelemetry is not installed."""
    if traces is Traces.OFF:
        return NoTracer()
    try:
        from shared.process import otel

        return otel.exporting(traces, service, instance)
    except ImportError:
        raise StartError("--traces", traces.value, "needs the extra otel: pip install 'draftmesh[otel]'") from None


def traceparent(header: str | None) -> str:
    """The client's `traceparent`; empty if it is not valid."""
    match = _TRACEPARENT.match(header or "")
    return match[0] if match else ""
