"""OpenAI's chat completions, a dialect."""

from services.gateway.dialects.chat.collector import ChatCollector
from services.gateway.dialects.chat.framing import ChatFraming
from services.gateway.dialects.chat.request import parse_chat
from services.gateway.http.dialect import Identity, StatelessExchange
from services.gateway.requests.types import GenerationRequest


class ChatExchange(StatelessExchange):
    """A checked chat request."""

    def __init__(self, data: bytes) -> None:
        """Raises a 400 `ApiError` for a body that is not a chat request."""
        self._request = parse_chat(data)

    @property
    def streaming(self) -> bool:
        return self._request.stream

    def generation(self) -> GenerationRequest:
        return self._request.generation()

    def framing(self, identity: Identity) -> ChatFraming:
        return ChatFraming(self._request, identity)

    def collector(self, identity: Identity) -> ChatCollector:
        return ChatCollector(self._request, identity)
