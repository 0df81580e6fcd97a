"""Spans through OpenTelemetry's SDK; needs the extra `otel`. `tracing` imports this if traces are on.

Endpoint, headers, sampling and further resource attributes are taken from OpenTelemetry's own variables (`OTEL_…`).
"""

import sys
from typing import Final

from opentelemetry import trace as api
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.process.spans import NO_ATTRIBUTES, Attributes, Span, Tracer
from shared.settings.options import Traces

_CONTEXT: Final = TraceContextTextMapPropagator()
_FIELD: Final = "traceparent"
_CLOSE_MS: Final = 3000  # of the time between a service's drain and its SIGKILL
_NOWHERE: Final = api.set_span_in_context(api.INVALID_SPAN)  # no ambient span is a parent here


class SdkSpan(Span):
    def __init__(self, span: api.Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier, api.set_span_in_context(span))
        super().__init__(carrier.get(_FIELD, ""))

    def end(self, at_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES, *, failed: bool = False) -> None:
        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(api.StatusCode.ERROR)
        self._span.end(at_ns)


class SdkTracer(Tracer):
    """Sends spans to a provider of the SDK, and shuts it down at the end."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("draftmesh")

    def span(self, name: str, parent: str = "", at_ns: int | None = None, *, serves: bool = False) -> SdkSpan:
        context = _CONTEXT.extract({_FIELD: parent}, _NOWHERE) if parent else _NOWHERE
        kind = api.SpanKind.SERVER if serves else api.SpanKind.INTERNAL
        return SdkSpan(self._tracer.start_span(name, context, kind, start_time=at_ns))

    def __exit__(self, *_: object) -> None:
        self._provider.force_flush(_CLOSE_MS)
        self._provider.shutdown()


def exporting(traces: Traces, service: str, instance: str) -> SdkTracer:
    """A tracer that sends batches from a thread of its own: to a collector, or as JSON to standard error."""
    resource = Resource.create({SERVICE_NAME: f"draftmesh-{service}", SERVICE_INSTANCE_ID: instance})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(traces)))
    return SdkTracer(provider)


def _exporter(traces: Traces) -> SpanExporter:
    if traces is Traces.CONSOLE:
        return ConsoleSpanExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
