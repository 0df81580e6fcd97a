"""A stream as OpenAI's two older APIs have it: beginning, pieces, finish chunks, usage if asked for, the end mark."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.gateway.dialects.openai_frames import Frames, head
from services.gateway.errors import ApiError
from services.gateway.generation.choice import Delta, Event, Finished
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity
from services.gateway.http.sse import DONE, PING, frame
from services.gateway.requests.fields import StreamOptions


class Streamed(Protocol):
    """A request that may be streamed."""

    @property
    def stream_options(self) -> StreamOptions: ...


class OpenAIFraming:
    """Frames in the order that every client expects. The dialect decides what a piece looks like."""

    def __init__(self, request: Streamed, identity: Identity, prefix: str, kind: str) -> None:
        self._options = request.stream_options
        self._prepared = identity.prepared
        self._frames = Frames(head(identity, prefix, kind))
        self._tally = UsageTally(identity.prepared)

    def begin(self) -> list[bytes]:
        raise NotImplementedError

    def _pieces(self, event: Delta) -> list[bytes]:
        raise NotImplementedError

    def _nothing(self, index: int) -> dict[str, object]:
        """An empty piece of choice `index`, which ends the choice."""
        raise NotImplementedError

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        frames: list[bytes] = []
        for event in events:
            self._tally.saw(event)
            frames += [self._finish(event)] if isinstance(event, Finished) else self._pieces(event)
        return frames

    def end(self) -> list[bytes]:
        if not self._options.include_usage:
            return [DONE]
        return [self._frames.empty({"usage": self._tally.usage()}), DONE]

    def fail(self, error: ApiError) -> list[bytes]:
        return [frame(error.body()), DONE]

    def ping(self) -> bytes:
        return PING

    def _finish(self, finished: Finished) -> bytes:
        more: dict[str, object] = {"finish_reason": finished.reason}
        if len(self._prepared.jobs) > 1:
            more["speculative"] = finished.statistics.report()
        return self._chunk(self._nothing(finished.choice), more, self._tally.closing())

    def _chunk(
        self,
        piece: Mapping[str, object],
        more: Mapping[str, object] | None = None,
        top: dict[str, object] | None = None,
    ) -> bytes:
        choice: dict[str, object] = {**piece, "logprobs": None, "finish_reason": None}
        if more:
            choice |= more
        if self._options.continuous_usage_stats:
            top = {**(top or {}), "usage": self._tally.usage()}
        return self._frames.choice(choice, top)
