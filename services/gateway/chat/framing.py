"""A chat stream: a role chunk per choice, deltas, finish chunks, usage if asked for, the end mark."""

from collections.abc import Mapping, Sequence

from services.gateway.chat.parts import deltas, logprobs
from services.gateway.chat.request import ChatRequest
from services.gateway.dialect import Identity
from services.gateway.errors import ApiError
from services.gateway.generation import Delta, Event, Finished
from services.gateway.openai_frames import Frames, head, traces
from services.gateway.sse import DONE, PING, frame
from services.gateway.tally import Tally


class ChatFraming:
    """Frames in the order that every client expects."""

    def __init__(self, request: ChatRequest, identity: Identity) -> None:
        self._request = request
        self._prepared = identity.prepared
        self._frames = Frames(head(identity, "chatcmpl-", "chat.completion.chunk"))
        self._tally = Tally(identity.prepared)

    def begin(self) -> list[bytes]:
        start = {"role": "assistant", "content": ""}
        return [self._chunk(index, start) for index in range(len(self._prepared.jobs))]

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        frames: list[bytes] = []
        for event in events:
            self._tally.saw(event)
            frames += [self._finish(event)] if isinstance(event, Finished) else self._deltas(event)
        return frames

    def end(self) -> list[bytes]:
        if not self._request.stream_options.include_usage:
            return [DONE]
        return [self._frames.empty({"usage": self._tally.usage()}), DONE]

    def fail(self, error: ApiError) -> list[bytes]:
        return [frame(error.body()), DONE]

    def ping(self) -> bytes:
        return PING

    def _deltas(self, event: Delta) -> list[bytes]:
        extras = traces(self._request, event.pieces)
        if self._request.logprobs:
            extras["logprobs"] = logprobs(event.pieces, self._prepared.lexicon)
        said = deltas(event.parts, self._request.shows_reasoning)
        if extras and not said:
            said = [{"content": ""}]  # these tokens completed no text yet
        # What tokens brought beside their text comes once, with the first delta that they made.
        return [self._chunk(event.choice, delta, extras if index == 0 else None) for index, delta in enumerate(said)]

    def _finish(self, finished: Finished) -> bytes:
        choice: dict[str, object] = {"finish_reason": finished.reason}
        if len(self._prepared.jobs) > 1:
            choice["speculative"] = finished.statistics.report()
        return self._chunk(finished.choice, {}, choice, self._tally.closing())

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, object],
        more: Mapping[str, object] | None = None,
        top: dict[str, object] | None = None,
    ) -> bytes:
        choice: dict[str, object] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if more:
            choice |= more
        if self._request.stream_options.continuous_usage_stats:
            top = {**(top or {}), "usage": self._tally.usage()}
        return self._frames.choice(choice, top)
