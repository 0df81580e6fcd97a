"""Anthropic's Messages API: a stream of typed events, or one message with the same content.

Source: Anthropic's API reference, "Messages" and "Streaming messages".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.gateway.dialects.messages.content import Content, ContentEvents
from services.gateway.dialects.messages.request import MessagesRequest, parse_messages
from services.gateway.errors import ApiError
from services.gateway.generation.choice import CommittedToken, Event, Finished
from services.gateway.http import anthropic_errors
from services.gateway.http.dialect import Identity, StatelessExchange
from services.gateway.http.sse import event

_PING: Final = event({"type": "ping"})


class _Answer:
    """What the two forms of an answer share."""

    def __init__(self, request: MessagesRequest, identity: Identity) -> None:
        self._request = request
        self._prepared = identity.prepared
        self._id = f"msg_{identity.id}"
        # Clients only send the signature back, together with the thinking itself.
        self._events = ContentEvents(identity.id, shows_thinking=request.shows_thinking)
        self._pieces: list[CommittedToken] = []
        self._finished: Finished | None = None

    def _take(self, taken: Event) -> list[Mapping[str, Any]]:
        if isinstance(taken, Finished):
            self._finished = taken
            return self._events.finish()
        if self._request.return_token_ids or self._request.speculative_trace:
            self._pieces += taken.pieces
        return self._events.push(taken.parts)

    def _message(self, content: list[dict[str, Any]], **end: object) -> dict[str, object]:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._prepared.model.name}
        return {**head, "content": content, **end}

    def _stop(self) -> dict[str, object]:
        finished = self._end
        reason, sequence = "end_turn", None
        if finished.reason == "length":
            reason = "max_tokens"
        elif self._events.calls:
            reason = "tool_use"
        elif finished.stop is not None:
            reason, sequence = "stop_sequence", finished.stop
        return {"stop_reason": reason, "stop_sequence": sequence}

    def _usage(self) -> dict[str, object]:
        prompt = self._prepared.prompt_tokens
        cached = min(prompt, self._end.cached)
        details = {"output_tokens_details": {"thinking_tokens": self._end.reasoning}}
        return {**_input(prompt - cached, cached), "output_tokens": self._end.tokens, **details}

    def _extras(self) -> dict[str, object]:
        """Fields that Anthropic's API does not have."""
        extras: dict[str, object] = {"seed": self._prepared.seed, "speculative": self._end.statistics.report()}
        if self._request.return_token_ids:
            extras["token_ids"] = [piece.token for piece in self._pieces]
        if self._request.speculative_trace:
            extras["trace"] = [piece.trace for piece in self._pieces]
        return extras

    @property
    def _end(self) -> Finished:
        assert self._finished is not None
        return self._finished


def _input(fresh: int, cached: int) -> dict[str, object]:
    return {"input_tokens": fresh, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}


class MessagesFraming(_Answer):
    """A stream: message_start, the blocks' events, message_delta with how it ended, message_stop.

    The gateway learns only later how many tokens the cache held. So message_start counts the whole prompt as input and
    message_delta splits it; a client sees the true total from the beginning.
    """

    def begin(self) -> list[bytes]:
        usage = {**_input(self._prepared.prompt_tokens, 0), "output_tokens": 0}
        message = self._message([], stop_reason=None, stop_sequence=None, usage=usage)
        return [event({"type": "message_start", "message": message})]

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        return [event(made) for taken in events for made in self._take(taken)]

    def end(self) -> list[bytes]:
        last = {"type": "message_delta", "delta": self._stop(), "usage": self._usage(), **self._extras()}
        return [event(last), event({"type": "message_stop"})]

    def fail(self, error: ApiError) -> list[bytes]:
        return [event(anthropic_errors.body(error))]

    def ping(self) -> bytes:
        return _PING


class MessagesCollector(_Answer):
    """A whole message, with the content that the stream would have had, except a call that was cut off."""

    def __init__(self, request: MessagesRequest, identity: Identity) -> None:
        super().__init__(request, identity)
        self._content = Content()

    def take(self, events: Sequence[Event]) -> None:
        for taken in events:
            self._content.take(self._take(taken))

    def body(self) -> dict[str, object]:
        """The object; the answer must have ended."""
        content = self._content.blocks(self._events.broken)
        return {**self._message(content, **self._stop()), "usage": self._usage(), **self._extras()}


def messages_exchange(data: bytes) -> StatelessExchange[MessagesRequest]:
    """A checked Messages request. Raises a 400 `ApiError` for a body that is not one."""
    request = parse_messages(data)
    return StatelessExchange(request, MessagesFraming, MessagesCollector, request.warnings)
