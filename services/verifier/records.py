"""Reports each claim: one log line at its end, and the spans queue, prefill and decode. No prompt and no answer."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from services.verifier.generation import Generation
from shared.process.spans import Span, Tracer
from shared.wire.messages import Chunk, Finish

logger = structlog.get_logger()

_RELEASED: Final = "released"  # given back, so that another verifier continues
_LOST: Final = "lost"  # cancelled, taken over or gone


@dataclass(slots=True)
class _Record:
    began_ns: int
    waited_ns: int
    span: Span  # the running one: prefill, then decode
    first_ns: int | None = None
    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    finish: Finish = Finish.NONE


class Records:
    """The records of one verifier's claims. `clock` gives nanoseconds since 1970."""

    def __init__(self, tracer: Tracer, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._clock = clock
        self._open: dict[str, _Record] = {}

    def begin(self, generation: Generation, claimed_ns: int) -> None:
        """The request, claimed at `claimed_ns`, has entered the engine."""
        claim, job = generation.claim, generation.job
        now = self._clock()
        # Redis measured the wait before the claim by its own clock, so the clocks of two hosts are not compared.
        waited_ns = max(0, job.timeout_ms - claim.remaining_ms) * 1_000_000
        queue = self._tracer.span("queue", job.traceparent, claimed_ns - waited_ns)
        queue.end(now, {"draftmesh.epoch": claim.epoch})
        self._open[job.request_id] = _Record(
            began_ns=now,
            waited_ns=waited_ns + now - claimed_ns,
            span=self._tracer.span("prefill", job.traceparent, now),
        )

    def saw(self, generation: Generation, chunk: Chunk) -> None:
        """A round gave the request this chunk."""
        record = self._open[generation.job.request_id]
        if record.first_ns is None:
            record.first_ns = self._clock()
            tokens = {
                "draftmesh.prompt_tokens": len(generation.job.prompt),
                "draftmesh.cached_tokens": generation.cached,
            }
            record.span.end(record.first_ns, tokens)
            record.span = self._tracer.span("decode", generation.job.traceparent, record.first_ns)
        record.rounds += bool(chunk.tokens)
        record.tokens += len(chunk.tokens)
        record.drafted += chunk.drafted
        record.accepted += chunk.accepted
        record.finish = chunk.finish

    def end(self, generation: Generation) -> None:
        job = generation.job
        record = self._open.pop(job.request_id)
        now = self._clock()
        outcome = record.finish.value or (_LOST if generation.lost else _RELEASED)
        counts = {name: getattr(record, name) for name in ("rounds", "tokens", "drafted", "accepted")}
        attributes: dict[str, str | int] = {f"draftmesh.{name}": count for name, count in counts.items()}
        record.span.end(now, {**attributes, "draftmesh.outcome": outcome}, failed=record.finish is Finish.ERROR)
        first_ns = now if record.first_ns is None else record.first_ns
        logger.info(
            "request_served",
            request=job.request_id,
            epoch=generation.claim.epoch,
            prompt_tokens=len(job.prompt),
            cached=generation.cached,
            **counts,
            waited_ms=_ms(record.waited_ns),
            prefill_ms=_ms(first_ns - record.began_ns),
            decode_ms=_ms(now - first_ns),
            outcome=outcome,
        )


def _ms(ns: int) -> float:
    return round(ns / 1e6, 1)
