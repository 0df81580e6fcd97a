"""A stream of completions: the echoed prompts, text, finish chunks, usage if asked for, the end mark."""

from collections.abc import Mapping, Sequence

from services.gateway.completions.request import CompletionRequest
from services.gateway.completions.text import LegacyLogprobs, echoed
from services.gateway.dialect import Identity
from services.gateway.errors import ApiError
from services.gateway.generation import Delta, Event, Finished
from services.gateway.openai_frames import Frames, head, traces
from services.gateway.sse import DONE, PING, frame
from services.gateway.tally import Tally


class CompletionFraming:
    """Frames in the order that every client expects."""

    def __init__(self, request: CompletionRequest, identity: Identity) -> None:
        self._request = request
        self._prepared = identity.prepared
        self._frames = Frames(head(identity, "cmpl-", "text_completion"))
        self._tally = Tally(identity.prepared)
        self._logprobs = [LegacyLogprobs(identity.prepared.lexicon) for _ in identity.prepared.jobs]

    def begin(self) -> list[bytes]:
        if not self._request.echo:
            return []
        texts = [echoed(prompt, self._prepared.lexicon) for prompt in self._request.texts]
        return [self._chunk(index, texts[index // self._request.n]) for index in range(len(self._prepared.jobs))]

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        frames: list[bytes] = []
        for event in events:
            self._tally.saw(event)
            frames += [self._finish(event)] if isinstance(event, Finished) else self._text(event)
        return frames

    def end(self) -> list[bytes]:
        if not self._request.stream_options.include_usage:
            return [DONE]
        return [self._frames.empty({"usage": self._tally.usage()}), DONE]

    def fail(self, error: ApiError) -> list[bytes]:
        return [frame(error.body()), DONE]

    def ping(self) -> bytes:
        return PING

    def _text(self, event: Delta) -> list[bytes]:
        extras = traces(self._request, event.pieces)
        if self._request.logprobs is not None:
            extras["logprobs"] = self._logprobs[event.choice].take(event.pieces)
        text = event.text
        return [self._chunk(event.choice, text, extras)] if text or extras else []

    def _finish(self, finished: Finished) -> bytes:
        choice: dict[str, object] = {"finish_reason": finished.reason}
        if len(self._prepared.jobs) > 1:
            choice["speculative"] = finished.statistics.report()
        return self._chunk(finished.choice, "", choice, self._tally.closing())

    def _chunk(
        self,
        index: int,
        text: str,
        more: Mapping[str, object] | None = None,
        top: dict[str, object] | None = None,
    ) -> bytes:
        choice: dict[str, object] = {"text": text, "index": index, "logprobs": None, "finish_reason": None}
        if more:
            choice |= more
        if self._request.stream_options.continuous_usage_stats:
            top = {**(top or {}), "usage": self._tally.usage()}
        return self._frames.choice(choice, top)
