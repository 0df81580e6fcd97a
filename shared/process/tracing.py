"""Traces for OpenTelemetry, if they are switched on; otherwise none of it is imported.

A trace begins with a client's `traceparent` (W3C Trace Context), or in the gateway, and continues in `Job.traceparent`.
With traces off, a client's `traceparent` is still passed on, so that tracing services can attach their spans to it.
"""

import re
from typing import Final

from shared.errors import StartError
from shared.process.spans import Tracer
from shared.settings.options import Traces

# Later versions may append fields; we drop them, as the specification allows.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|$)")


def tracer(traces: Traces, service: str, instance: str) -> Tracer:
    """The tracer of a service's process. Raises `StartError` if traces are on and OpenTelemetry is not installed."""
    if traces is Traces.OFF:
        return Tracer()
    try:
        from shared.process import otel

        return otel.exporting(traces, service, instance)
    except ImportError:
        raise StartError(
            "--traces", traces.value, "needs the extra otel: pip install '.[otel]' in a checkout of draftmesh"
        ) from None


def traceparent(header: str | None) -> str:
    """The client's `traceparent`; empty if it is not valid."""
    match = _TRACEPARENT.match(header or "")
    return match[0] if match else ""
