"""Traces: off, they cost no import; a client's context travels along; spans hang where they belong."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared import process
from shared.errors import StartError
from shared.process.spans import Tracer
from shared.process.tracing import traceparent, tracer
from shared.settings.options import Traces
from tests.traced import recording

CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_nothing_of_opentelemetry_is_imported_while_traces_are_off() -> None:
    code = (
        "OURS = ('shared.process.otel', 'opentelemetry.sdk.trace', 'opentelemetry.exporter')  # not metrics\n"
        "import sys, services.gateway.__main__, services.verifier.__main__, services.drafter.__main__\n"
        "from shared.settings.options import Traces\n"
        "from shared.process.tracing import tracer\n"
        "with tracer(Traces.OFF, 'gateway', 'g') as told: told.span('one').end()\n"
        "print([name for name in sys.modules if name.startswith(OURS)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("traces", [Traces.OTLP, Traces.CONSOLE])
def test_without_the_extra_the_option_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, traces: Traces
) -> None:
    monkeypatch.delattr(process, "otel", raising=False)
    monkeypatch.delitem(sys.modules, "shared.process.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartError, match=r"--traces .*'\.\[otel\]' in a checkout"):
        tracer(traces, "gateway", "g")


def test_traces_that_are_off_hand_on_what_the_client_sent() -> None:
    assert Tracer().span("one", CLIENTS).traceparent == CLIENTS
    assert Tracer().span("one").traceparent == ""


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (CLIENTS, CLIENTS),
        (f"{CLIENTS.replace('00-', 'cc-', 1)}-what-a-later-version-says", CLIENTS.replace("00-", "cc-", 1)),
        (None, ""),
        ("", ""),
        (CLIENTS[:-1], ""),
        (CLIENTS + "0", ""),
        (CLIENTS.upper(), ""),
        (CLIENTS.replace("00-", "ff-", 1), ""),
        (CLIENTS.replace("b7ad6b7169203331", "0" * 16), ""),
        (CLIENTS.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), ""),
        ("00-" + "0" * 10_000, ""),
    ],
)
def test_only_what_the_specification_allows_is_taken_from_a_client(header: str | None, taken: str) -> None:
    assert traceparent(header) == taken


def test_a_span_hangs_below_its_parent_and_carries_what_is_known_at_its_end() -> None:
    exporter = InMemorySpanExporter()
    with recording(exporter) as told:
        outer = told.span("outer", CLIENTS, serves=True)
        inner = told.span("inner", outer.traceparent, 1_000)
        inner.end(3_000, {"draftmesh.rounds": 2}, failed=True)
        outer.end()
    first, second = exporter.get_finished_spans()
    assert (first.name, first.start_time, first.end_time) == ("inner", 1_000, 3_000)
    assert dict(first.attributes or {}) == {"draftmesh.rounds": 2}
    assert first.status.status_code is trace.StatusCode.ERROR
    assert first.parent is not None
    assert second.parent is not None
    assert second.context is not None
    assert first.parent.span_id == second.context.span_id
    assert f"{second.parent.trace_id:032x}-{second.parent.span_id:016x}" in CLIENTS
    assert second.kind is trace.SpanKind.SERVER


def test_a_span_without_a_parent_begins_a_trace_whatever_surrounds_it() -> None:
    exporter = InMemorySpanExporter()
    with recording(exporter) as told:
        ambient = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
        with trace.use_span(ambient):
            told.span("one").end()
    [span] = exporter.get_finished_spans()
    assert span.parent is None


def test_a_client_that_does_not_sample_is_obeyed() -> None:
    exporter = InMemorySpanExporter()
    with recording(exporter) as told:
        unsampled = CLIENTS[:-1] + "0"
        told.span("one", unsampled).end()
    assert exporter.get_finished_spans() == ()


def test_the_console_gets_spans_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    with tracer(Traces.CONSOLE, "gateway", "gateway-1") as told:
        told.span("one").end()
    said = capfd.readouterr().err
    assert '"name": "one"' in said
    assert '"service.name": "draftmesh-gateway"' in said
    assert '"service.instance.id": "gateway-1"' in said
