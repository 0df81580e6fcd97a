"""A tracer whose spans a test can look at."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.process.otel import SdkTracer


def recording(exporter: InMemorySpanExporter) -> SdkTracer:
    """A tracer into `exporter`, each span at its end."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SdkTracer(provider)
