"""What a verifier tells of a claim: times that add up, counts of its rounds, and how it ended; no prompt, no answer."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from services.verifier.engine import Engine
from services.verifier.records import Records
from shared.law.speedup import RowCosts
from shared.process.spans import Tracer
from shared.wire.jobs import Claim
from shared.wire.messages import Chunk, Finish
from tests.toys import EOG, ToyTarget, job
from tests.traced import recording

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MS = 1_000_000


class Clock:
    """Nanoseconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000 * MS

    def __call__(self) -> int:
        return self.now


def served(tracer: Any, *chunks: Chunk, lost: bool = False) -> dict[str, Any]:
    """A claim 40 ms after its submission, admitted 5 ms later, with a chunk each 10 ms; its log line."""
    clock = Clock()
    records = Records(tracer, clock)
    engine = Engine(ToyTarget(), RowCosts({1: 1.0}), [EOG])
    request = job("r1", prompt=(5, 6, 7), timeout_ms=10_000, traceparent=PARENT)
    generation = engine.admit(Claim(job=request, epoch=2, committed=0, remaining_ms=9_960), [])
    with capture_logs() as lines:
        records.begin(generation, clock.now - 5 * MS)
        for chunk in chunks:
            clock.now += 10 * MS
            records.saw(generation, chunk)
        if lost:
            generation.lose()
        clock.now += MS
        records.end(generation)
    [line] = lines
    return dict(line)


def rounds() -> list[Chunk]:
    return [
        Chunk(tokens=(4,)),
        Chunk(tokens=(5, 6, 7), drafted=4, accepted=2),
        Chunk(tokens=(8,), drafted=1, finish=Finish.STOP),
    ]


def spans(*chunks: Chunk, lost: bool = False) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    with recording(exporter) as tracer:
        served(tracer, *chunks, lost=lost)
    return {span.name: span for span in exporter.get_finished_spans()}


def test_one_line_says_how_long_and_how_much() -> None:
    line = served(Tracer(), *rounds())
    assert (line["event"], line["request"], line["epoch"], line["outcome"]) == ("request_served", "r1", 2, "stop")
    assert (line["waited_ms"], line["prefill_ms"], line["decode_ms"]) == (45.0, 10.0, 21.0)
    assert (line["rounds"], line["tokens"], line["drafted"], line["accepted"]) == (3, 5, 5, 2)
    assert line["prompt_tokens"] == 3


def test_the_spans_of_a_request_follow_each_other_without_gaps() -> None:
    found = spans(*rounds())
    assert list(found) == ["queue", "prefill", "decode"]
    queue, prefill, decode = found.values()
    assert (queue.end_time or 0) - (queue.start_time or 0) == 45 * MS
    assert queue.end_time == prefill.start_time
    assert prefill.end_time == decode.start_time
    assert all(span.parent and f"{span.parent.span_id:016x}" in PARENT for span in found.values())
    attributes = dict(decode.attributes or {})
    assert attributes == {
        "draftmesh.rounds": 3,
        "draftmesh.tokens": 5,
        "draftmesh.drafted": 5,
        "draftmesh.accepted": 2,
        "draftmesh.outcome": "stop",
    }


@pytest.mark.parametrize(
    ("chunks", "lost", "outcome"),
    [
        ([], True, "lost"),
        ([], False, "released"),
        ([Chunk(tokens=(4,))], True, "lost"),
        ([Chunk(tokens=(4,))], False, "released"),
        ([Chunk(tokens=(), finish=Finish.DEADLINE)], False, "deadline"),
        ([Chunk(tokens=(4,), finish=Finish.ERROR)], False, "error"),
    ],
)
def test_however_a_request_leaves_its_line_and_its_last_span_say_so(
    chunks: list[Chunk], lost: bool, outcome: str
) -> None:
    assert served(Tracer(), *chunks, lost=lost)["outcome"] == outcome
    last = list(spans(*chunks, lost=lost).values())[-1]
    assert dict(last.attributes or {})["draftmesh.outcome"] == outcome
    assert last.status.is_ok is (outcome != "error") or last.status.is_unset
