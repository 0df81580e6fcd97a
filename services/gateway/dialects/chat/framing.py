"""A chat stream: a role chunk per choice, then deltas."""

from services.gateway.dialects.chat.parts import deltas, logprobs
from services.gateway.dialects.chat.request import ChatRequest
from services.gateway.dialects.openai_frames import traces
from services.gateway.dialects.openai_stream import OpenAIFraming
from services.gateway.generation.choice import Delta
from services.gateway.http.dialect import Identity


class ChatFraming(OpenAIFraming):
    """Deltas of content, thinking and calls."""

    def __init__(self, request: ChatRequest, identity: Identity) -> None:
        super().__init__(request, identity, "chatcmpl-", "chat.completion.chunk")
        self._request = request

    def begin(self) -> list[bytes]:
        start = {"role": "assistant", "content": ""}
        return [self._chunk({"index": index, "delta": start}) for index in range(len(self._prepared.jobs))]

    def _pieces(self, event: Delta) -> list[bytes]:
        extras = traces(self._request, event.pieces)
        if self._request.logprobs:
            extras["logprobs"] = logprobs(event.pieces, self._prepared.lexicon)
        said = deltas(event.parts, self._request.shows_reasoning)
        if extras and not said:
            said = [{"content": ""}]  # these tokens completed no text yet
        # Token ids and log-probabilities are sent once, with the first delta of their tokens.
        return [
            self._chunk({"index": event.choice, "delta": delta}, extras if number == 0 else None)
            for number, delta in enumerate(said)
        ]

    def _nothing(self, index: int) -> dict[str, object]:
        return {"index": index, "delta": {}}
