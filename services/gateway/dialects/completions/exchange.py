"""OpenAI's completions of a text, a dialect. An answer goes out as it is, marks of thinking and calls included."""

from services.gateway.dialects.completions.collector import CompletionCollector
from services.gateway.dialects.completions.framing import CompletionFraming
from services.gateway.dialects.completions.request import parse_completion
from services.gateway.http.dialect import Identity, StatelessExchange
from services.gateway.requests.types import GenerationRequest


class CompletionExchange(StatelessExchange):
    """A checked request."""

    def __init__(self, data: bytes) -> None:
        """Raises a 400 `ApiError` for a body that is not such a request."""
        self._request = parse_completion(data)

    @property
    def streaming(self) -> bool:
        return self._request.stream

    def generation(self) -> GenerationRequest:
        return self._request.generation()

    def framing(self, identity: Identity) -> CompletionFraming:
        return CompletionFraming(self._request, identity)

    def collector(self, identity: Identity) -> CompletionCollector:
        return CompletionCollector(self._request, identity)
