"""Traces for OpenTelemetry where they are switched on; where they are not, nothing of it is imported.

A trace begins with a client's `traceparent` (W3C Trace Context), or in the gateway, and goes on in `Job.traceparent`.
With traces off a client's own `traceparent` still travels along, so that services which trace hang theirs below it.
"""

import re
from types import TracebackType
from typing import Final, Self

from shared.errors import StartError
from shared.process.spans import NO_ATTRIBUTES, Attributes, Span, Tracer
from shared.settings.options import Traces

# Later versions may append fields; those are left out, as their specification allows.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|$)")


class _Untold:
    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        pass


class NoTracer:
    """Tells nothing; its spans hand on what they were given."""

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> Span:
        return _Untold(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def tracer(traces: Traces, service: str, instance: str) -> Tracer:
    """The tracer of a service's process. Raises `StartError` if OpenTelemetry is wanted and not installed."""
    if traces is Traces.OFF:
        return NoTracer()
    try:
        from shared.process import otel

        return otel.exporting(traces, service, instance)
    except ImportError:
        raise StartError("--traces", traces.value, "needs the extra otel: pip install 'draftmesh[otel]'") from None


def traceparent(header: str | None) -> str:
    """What a client sent as `traceparent`; nothing if it is none."""
    match = _TRACEPARENT.match(header or "")
    return match[0] if match else ""
