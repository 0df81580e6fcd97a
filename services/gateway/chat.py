"""OpenAI's chat completions: chunks in the order that every client expects, or one object with the same content."""

from collections.abc import Sequence
from typing import Any

from services.gateway.chat_request import ChatRequest, parse_chat
from services.gateway.dialect import Identity, StatelessCall
from services.gateway.errors import ApiError
from services.gateway.generation import Delta, Event, Finished, Piece
from services.gateway.models import Lexicon
from services.gateway.requests import GenerationRequest
from services.gateway.sse import DONE, PING, frame
from services.gateway.stats import DraftStatistics

# JSON has no infinity; this is what OpenAI documents for "as good as impossible".
_LOWEST_LOGPROB = -9999.0


class ChatCall(StatelessCall):
    """A checked chat request."""

    def __init__(self, data: bytes) -> None:
        """Raises a 400 `ApiError` for a body that is not a chat request."""
        self._request = parse_chat(data)

    @property
    def streaming(self) -> bool:
        return self._request.stream

    def generation(self) -> GenerationRequest:
        return self._request.generation()

    def framing(self, identity: Identity) -> "ChatFraming":
        return ChatFraming(self._request, identity)

    def collector(self, identity: Identity) -> "ChatCollector":
        return ChatCollector(self._request, identity)


class _Chat:
    """What the two forms of an answer share."""

    def __init__(self, request: ChatRequest, identity: Identity, kind: str) -> None:
        self._request = request
        self._lexicon = identity.prepared.lexicon
        self._prepared = identity.prepared
        self._choices = len(identity.prepared.jobs)
        self._finished: dict[int, Finished] = {}
        self._head: dict[str, object] = {
            "id": f"chatcmpl-{identity.id}",
            "object": kind,
            "created": identity.created,
            "model": identity.prepared.model.name,
            "system_fingerprint": identity.prepared.model.system_fingerprint,
        }

    def _extras(self, pieces: Sequence[Piece]) -> dict[str, object]:
        """What was asked for beside the text, for these tokens."""
        extras: dict[str, object] = {}
        if self._request.logprobs:
            extras["logprobs"] = {"content": _logprobs(pieces, self._lexicon), "refusal": None}
        if self._request.return_token_ids:
            extras["token_ids"] = [piece.token for piece in pieces]
        if self._request.speculative_trace:
            extras["trace"] = [{"token": piece.token, "text": piece.text, "source": piece.source} for piece in pieces]
        return extras

    def _speculative(self) -> dict[str, object]:
        """The sum over the choices that have finished."""
        total = DraftStatistics()
        for finished in self._finished.values():
            total.merge(finished.statistics)
        return total.report()

    def _usage(self) -> dict[str, object]:
        prompt, completion = self._prepared.prompt_tokens, sum(choice.tokens for choice in self._finished.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            # The prompt counts once, whatever the number of choices: so does what was cached of it.
            "prompt_tokens_details": {"cached_tokens": min(prompt, self._finished[0].cached)},
        }


class ChatFraming(_Chat):
    """A stream: a role chunk per choice, content, finish chunks, usage if asked for, the end mark."""

    def __init__(self, request: ChatRequest, identity: Identity) -> None:
        super().__init__(request, identity, "chat.completion.chunk")

    def begin(self) -> list[bytes]:
        return [self._chunk(index, {"role": "assistant", "content": ""}) for index in range(self._choices)]

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        frames = []
        for event in events:
            if isinstance(event, Finished):
                frames.append(self._finish(event))
            elif event.text or self._has_extras:
                frames.append(self._chunk(event.choice, {"content": event.text}, self._extras(event.pieces)))
        return frames

    def end(self) -> list[bytes]:
        if not self._request.stream_options.include_usage:
            return [DONE]
        return [frame({**self._head, "choices": [], "usage": self._usage()}), DONE]

    def fail(self, error: ApiError) -> list[bytes]:
        return [frame(error.body()), DONE]

    def ping(self) -> bytes:
        return PING

    @property
    def _has_extras(self) -> bool:
        return self._request.logprobs or self._request.return_token_ids or self._request.speculative_trace

    def _finish(self, finished: Finished) -> bytes:
        self._finished[finished.choice] = finished
        choice: dict[str, object] = {"finish_reason": finished.reason}
        if self._choices > 1:
            choice["speculative"] = finished.statistics.report()
        seed = self._prepared.seed
        return self._chunk(finished.choice, {}, choice, {"seed": seed, "speculative": self._speculative()})

    def _chunk(
        self,
        index: int,
        delta: dict[str, object],
        choice: dict[str, object] | None = None,
        top: dict[str, object] | None = None,
    ) -> bytes:
        common: dict[str, object] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return frame({**self._head, "choices": [{**common, **(choice or {})}], **(top or {})})


class ChatCollector(_Chat):
    """A whole answer, with the content that the stream would have had."""

    def __init__(self, request: ChatRequest, identity: Identity) -> None:
        super().__init__(request, identity, "chat.completion")
        self._texts: list[list[str]] = [[] for _ in range(self._choices)]
        self._pieces: list[list[Piece]] = [[] for _ in range(self._choices)]

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Delta):
                self._texts[event.choice].append(event.text)
                self._pieces[event.choice] += event.pieces
            else:
                self._finished[event.choice] = event

    def body(self) -> dict[str, object]:
        """The object; every choice must have finished."""
        return {
            **self._head,
            "choices": [self._choice(index) for index in range(self._choices)],
            "usage": self._usage(),
            "seed": self._prepared.seed,
            "speculative": self._speculative(),
        }

    def _choice(self, index: int) -> dict[str, object]:
        finished = self._finished[index]
        choice: dict[str, object] = {
            "index": index,
            "message": {"role": "assistant", "content": "".join(self._texts[index]), "refusal": None},
            "logprobs": None,
            "finish_reason": finished.reason,
        }
        if self._choices > 1:
            choice["speculative"] = finished.statistics.report()
        return {**choice, **self._extras(self._pieces[index])}


def _logprobs(pieces: Sequence[Piece], lexicon: Lexicon) -> list[dict[str, Any]]:
    """One entry per token that the verifier gave a log-probability for."""
    return [
        {
            **_entry(piece.token, piece.logprob.logprob, lexicon),
            "top_logprobs": [_entry(token, logprob, lexicon) for token, logprob in piece.logprob.top],
        }
        for piece in pieces
        if piece.logprob is not None
    ]


def _entry(token: int, logprob: float, lexicon: Lexicon) -> dict[str, Any]:
    label = lexicon.label(token)
    return {
        "token": label.decode(errors="replace"),
        "bytes": list(label),
        "logprob": max(logprob, _LOWEST_LOGPROB),
    }
