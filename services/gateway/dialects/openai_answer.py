"""What the answers of OpenAI's two older APIs share: the chunks of a stream, and the object that they add up to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from services.gateway.dialects.joining import joined
from services.gateway.errors import ApiError
from services.gateway.generation.choice import Delta, Event, Finished
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity
from services.gateway.http.sse import DONE, PING, frame
from services.gateway.requests.fields import StreamOptions

Chunk = Mapping[str, Any]  # without the head that all chunks have
_END: Final[Chunk] = {}  # the end mark, which is no object
_OURS: Final = ("speculative", "token_ids", "trace")  # members of a choice that OpenAI's APIs do not have
_encode: Final = msgspec.json.Encoder().encode


class OpenAIAnswer:
    """A stream in the order that every client expects: beginning, pieces, finish chunks, usage if asked for, end mark.

    The dialect says what a piece of a choice is, and what the pieces of a choice add up to.
    """

    def __init__(
        self, options: StreamOptions, identity: Identity, usage: UsageTally, prefix: str, kind: str, chunk_kind: str
    ) -> None:
        model = identity.prepared.model
        self._counts_at_end = options.include_usage
        self._counts_always = options.continuous_usage_stats
        self._prepared = identity.prepared
        self._usage = usage
        self._head = {
            "id": f"{prefix}{identity.id}",
            "object": kind,
            "created": identity.created,
            "model": model.name,
            "system_fingerprint": model.system_fingerprint,
        }
        self._start = b"data: " + _encode({**self._head, "object": chunk_kind})[:-1] + b","

    def begin(self) -> list[Chunk]:
        raise NotImplementedError

    def _pieces(self, delta: Delta) -> list[Chunk]:
        raise NotImplementedError

    def _nothing(self, index: int) -> dict[str, object]:
        """An empty piece of choice `index`, which ends the choice."""
        raise NotImplementedError

    def _content(self, choice: Mapping[str, Any]) -> dict[str, object]:
        """What stands first in a whole choice, made of its joined pieces."""
        raise NotImplementedError

    def take(self, event: Event) -> list[Chunk]:
        return [self._finish(event)] if isinstance(event, Finished) else self._pieces(event)

    def end(self) -> list[Chunk]:
        usage: list[Chunk] = [{"choices": [], "usage": self._usage.usage()}] if self._counts_at_end else []
        return [*usage, _END]

    def frame(self, told: Chunk) -> bytes:
        return self._start + _encode(told)[1:] + b"\n\n" if told else DONE

    def fail(self, error: ApiError) -> bytes:
        return frame(error.body()) + DONE

    def ping(self) -> bytes:
        return PING

    def whole(self, told: Sequence[Chunk]) -> dict[str, object]:
        pieces: list[list[Mapping[str, Any]]] = [[] for _ in self._prepared.jobs]
        for chunk in told:
            for choice in chunk.get("choices", ()):
                pieces[choice["index"]].append(choice)
        choices = [self._whole_choice(joined(choice)) for choice in pieces]
        return {**self._head, "choices": choices, "usage": self._usage.usage(), **self._usage.closing()}

    def _whole_choice(self, choice: Mapping[str, Any]) -> dict[str, object]:
        return {
            **self._content(choice),
            "logprobs": choice["logprobs"],
            "finish_reason": choice["finish_reason"],
            **{name: choice[name] for name in _OURS if name in choice},
        }

    def _finish(self, finished: Finished) -> Chunk:
        more: dict[str, object] = {"finish_reason": finished.reason}
        if len(self._prepared.jobs) > 1:
            more["speculative"] = finished.statistics.report()
        return self._chunk(self._nothing(finished.choice), more, self._usage.closing())

    def _chunk(
        self,
        piece: Mapping[str, object],
        more: Mapping[str, object] | None = None,
        top: Mapping[str, object] | None = None,
    ) -> Chunk:
        choice: dict[str, object] = {**piece, "logprobs": None, "finish_reason": None}
        if more:
            choice |= more
        chunk: dict[str, Any] = {"choices": [choice]}
        if top:
            chunk |= top
        if self._counts_always:
            chunk["usage"] = self._usage.usage()
        return chunk
