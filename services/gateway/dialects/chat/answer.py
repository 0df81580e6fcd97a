"""A chat answer: a role chunk per choice, then deltas; or the message that they add up to."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from services.gateway.dialects.chat.request import ChatRequest, parse_chat
from services.gateway.dialects.joining import joined
from services.gateway.dialects.openai_answer import Chunk, OpenAIAnswer
from services.gateway.dialects.tokens import entries, traces
from services.gateway.dialects.tool_calls import OPENAI
from services.gateway.formats.parts import CallArguments, CallStart, Part, Text, Thought
from services.gateway.generation.choice import Delta
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity, StatelessExchange


class ChatAnswer(OpenAIAnswer):
    """Deltas of content, thinking and calls."""

    def __init__(self, request: ChatRequest, identity: Identity, usage: UsageTally) -> None:
        super().__init__(
            request.stream_options, identity, usage, "chatcmpl-", "chat.completion", "chat.completion.chunk"
        )
        self._request = request

    def begin(self) -> list[Chunk]:
        start = {"role": "assistant", "content": ""}
        return [self._chunk({"index": index, "delta": start}) for index in range(len(self._prepared.jobs))]

    def _pieces(self, delta: Delta) -> list[Chunk]:
        extras = traces(self._request, delta.pieces)
        if self._request.logprobs:
            extras["logprobs"] = {"content": entries(delta.pieces, self._prepared.lexicon), "refusal": None}
        said = [said for part in delta.parts for said in self._say(part)]
        if extras and not said:
            said = [{"content": ""}]  # these tokens completed no text yet
        # Token ids and log-probabilities are sent once, with the first delta of their tokens.
        return [
            self._chunk({"index": delta.choice, "delta": one}, extras if number == 0 else None)
            for number, one in enumerate(said)
        ]

    def _say(self, part: Part) -> list[dict[str, object]]:
        """The delta for a part, if clients receive it.

        The first delta of a call has its name and empty arguments; later ones have only pieces of the arguments.
        """
        match part:
            case Text(text):
                return [{"content": text}]
            case Thought(text) if self._request.shows_reasoning:
                return [{"reasoning_content": text}]
            case CallStart(index, call_id, name):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": f"{OPENAI}{call_id}", "type": "function", "function": function}
                return [{"tool_calls": [call]}]
            case CallArguments(index, fragment):
                return [{"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}]
        return []

    def _nothing(self, index: int) -> dict[str, object]:
        return {"index": index, "delta": {}}

    def _content(self, choice: Mapping[str, Any]) -> dict[str, object]:
        """The message. A call that was cut off is in it as far as it came: `finish_reason` is not `tool_calls` then."""
        delta, index = choice["delta"], choice["index"]
        pieces: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for piece in delta.get("tool_calls", ()):
            pieces[piece["index"]].append({name: value for name, value in piece.items() if name != "index"})
        calls = [joined(call) for call in pieces.values()]
        message = {"role": "assistant", "content": delta["content"] or (None if calls else ""), "refusal": None}
        if "reasoning_content" in delta:
            message["reasoning_content"] = delta["reasoning_content"]
        if calls:
            message["tool_calls"] = calls
        return {"index": index, "message": message}


def completions_exchange(data: bytes) -> StatelessExchange[ChatRequest]:
    """A checked chat request. Raises a 400 `ApiError` for a body that is not one."""
    request = parse_chat(data)
    return StatelessExchange(request, ChatAnswer, request.foreign_tools())
