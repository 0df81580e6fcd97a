"""Anthropic's Messages API: a stream of typed events, or one message with the same content.

Source: Anthropic's API reference, "Messages" and "Streaming messages".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.gateway.dialects.messages.content import ContentEvents, blocks
from services.gateway.dialects.messages.request import MessagesPrompt, MessagesRequest, parse_messages
from services.gateway.dialects.tokens import traces
from services.gateway.errors import ApiError
from services.gateway.generation.choice import CommittedToken, Event, Finished
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity, StatelessExchange
from services.gateway.http.error_shapes import anthropic
from services.gateway.http.sse import event as framed

_PING: Final = framed({"type": "ping"})


class MessagesAnswer:
    """A stream: message_start, the blocks' events, message_delta with how it ended, message_stop.

    The gateway learns only later how many tokens the cache held. So message_start counts the whole prompt as input and
    message_delta splits it; a client sees the true total from the beginning.
    """

    def __init__(self, request: MessagesPrompt, identity: Identity, usage: UsageTally) -> None:
        self._request = request
        self._identity = identity
        self._usage = usage
        # Clients only send the signature back, together with the thinking itself.
        self._events = ContentEvents(identity.id, shows_thinking=request.shows_thinking)
        self._pieces: list[CommittedToken] = []
        self._finished: Finished | None = None

    def begin(self) -> list[Mapping[str, Any]]:
        message: dict[str, object] = {
            "id": f"msg_{self._identity.id}",
            "type": "message",
            "role": "assistant",
            "model": self._identity.prepared.model.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_input(self._usage.prompt, 0), "output_tokens": 0},
        }
        return [{"type": "message_start", "message": message}]

    def take(self, event: Event) -> list[Mapping[str, Any]]:
        if isinstance(event, Finished):
            self._finished = event
            return self._events.finish()
        if self._request.return_token_ids or self._request.speculative_trace:
            self._pieces += event.pieces
        return self._events.push(event.parts)

    def end(self) -> list[Mapping[str, Any]]:
        cached = self._usage.cached
        usage = {
            **_input(self._usage.prompt - cached, cached),
            "output_tokens": self._usage.tokens,
            "output_tokens_details": {"thinking_tokens": self._usage.reasoning},
        }
        ours = {"seed": self._identity.prepared.seed, "speculative": self._usage.statistics.report()}
        last = {"delta": self._stop(), "usage": usage, **ours, **traces(self._request, self._pieces)}
        return [{"type": "message_delta", **last}, {"type": "message_stop"}]

    def frame(self, told: Mapping[str, Any]) -> bytes:
        return framed(told)

    def fail(self, error: ApiError) -> bytes:
        return framed(anthropic(error))

    def ping(self) -> bytes:
        return _PING

    def whole(self, told: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        """The message that a client puts together."""
        start, *content, last, _ = told
        ended = {name: value for name, value in last.items() if name not in ("type", "delta")}
        return {**start["message"], "content": blocks(content), **last["delta"], **ended}

    def _stop(self) -> dict[str, object]:
        finished = self._finished
        assert finished is not None
        reason, sequence = "end_turn", None
        if finished.reason == "length":
            reason = "max_tokens"
        elif finished.reason == "tool_calls":
            reason = "tool_use"
        elif finished.stop is not None:
            reason, sequence = "stop_sequence", finished.stop
        return {"stop_reason": reason, "stop_sequence": sequence}


def _input(fresh: int, cached: int) -> dict[str, object]:
    return {"input_tokens": fresh, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}


def messages_exchange(data: bytes) -> StatelessExchange[MessagesRequest]:
    """A checked Messages request. Raises a 400 `ApiError` for a body that is not one."""
    request = parse_messages(data, MessagesRequest)
    return StatelessExchange(request, MessagesAnswer, request.warnings)


def counted_exchange(data: bytes) -> StatelessExchange[MessagesPrompt]:
    """The same for a request that is only counted."""
    request = parse_messages(data, MessagesPrompt)
    return StatelessExchange(request, MessagesAnswer, request.warnings)
