"""One request's account: when its tokens came and how it ended. Makes one log line and one set of observations at its
end."""

import time
from collections.abc import Sequence

import structlog
from prometheus_client import Histogram

from services.gateway.errors import ApiError
from services.gateway.generation.choice import Delta, Event, Finished
from services.gateway.generation.draft_statistics import DraftStatistics
from services.gateway.generation.preparation import Prepared
from services.gateway.monitoring.metrics import Metrics
from shared.process.spans import Span

logger = structlog.get_logger()


class Account:
    """Open it when a request arrives, close it once when it ends."""

    def __init__(self, metrics: Metrics, request_id: str, answer_id: str, span: Span) -> None:
        self._metrics = metrics
        self._request_id = request_id
        self._answer_id = answer_id
        self._span = span
        self._started = time.monotonic()
        self._first: float | None = None
        self._last: dict[int, float] = {}
        self._prepared: Prepared | None = None
        self._gaps: Histogram | None = None
        self._tokens = 0
        self._statistics = DraftStatistics()
        self._outcome = "error"

    @property
    def traceparent(self) -> str:
        """The trace context for other processes' work on this request; empty without a trace."""
        return self._span.traceparent

    def prepare(self, prepared: Prepared) -> None:
        """The request was admissible."""
        self._prepared = prepared
        self._gaps = self._metrics.inter_token.labels(prepared.model.name)

    def saw(self, events: Sequence[Event]) -> None:
        """Events were read, now."""
        now = time.monotonic()
        for event in events:
            if isinstance(event, Finished):
                self._statistics.merge(event.statistics)
                self._outcome = "length" if "length" in (event.reason, self._outcome) else event.reason
            elif event.pieces:
                self._saw_tokens(event, now)

    def _saw_tokens(self, delta: Delta, now: float) -> None:
        assert self._prepared is not None
        assert self._gaps is not None
        count = len(delta.pieces)
        self._tokens += count
        if self._first is None:
            self._first = now
            self._metrics.first_token.labels(self._prepared.model.name).observe(now - self._started)
        previous = self._last.get(delta.choice)
        if previous is not None:
            self._gaps.observe((now - previous) / count)
        self._last[delta.choice] = now

    def fail(self, error: ApiError) -> None:
        """The request was refused or failed."""
        self._metrics.errors.labels(error.code or error.kind).inc()
        outcomes = {499: "cancelled", 503: "refused", 504: "deadline"}
        self._outcome = outcomes.get(error.status, "refused" if error.status < 500 else "error")

    def leave(self) -> None:
        """The client went away."""
        if self._outcome != "stalled":
            self._outcome = "disconnected"

    def stall(self) -> None:
        """The client stayed connected but read nothing."""
        self._outcome = "stalled"

    def close(self) -> None:
        """Log and count the end."""
        now = time.monotonic()
        model = self._prepared.model.name if self._prepared else ""
        prompt_tokens = self._prepared.prompt_tokens if self._prepared else 0
        self._metrics.requests.labels(model, self._outcome).inc()
        if self._prepared:
            self._metrics.prompt_tokens.labels(model).inc(prompt_tokens)
            self._metrics.generation_tokens.labels(model).inc(self._tokens)
            self._metrics.duration.labels(model).observe(now - self._started)
        counts = {name: getattr(self._statistics, name) for name in ("rounds", "drafted", "accepted")}
        logger.info(
            "request_finished",
            request_id=self._request_id,
            answer_id=self._answer_id,
            model=model,
            prompt_tokens=prompt_tokens,
            completion_tokens=self._tokens,
            **counts,
            ttft_ms=None if self._first is None else round((self._first - self._started) * 1000, 1),
            total_ms=round((now - self._started) * 1000, 1),
            finish=self._outcome,
        )
        attributes: dict[str, str | int] = {f"draftmesh.{name}": count for name, count in counts.items()}
        attributes |= {"draftmesh.request_id": self._request_id, "draftmesh.outcome": self._outcome}
        # OpenTelemetry's names for generative models.
        attributes |= {"gen_ai.request.model": model, "gen_ai.usage.input_tokens": prompt_tokens}
        attributes |= {"gen_ai.usage.output_tokens": self._tokens}
        self._span.end(attributes=attributes, failed=self._outcome == "error")
