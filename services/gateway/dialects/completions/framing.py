"""A stream of completions: the echoed prompts, then text."""

from services.gateway.dialects.completions.request import CompletionRequest
from services.gateway.dialects.completions.text import LegacyLogprobs, echoed
from services.gateway.dialects.openai_frames import traces
from services.gateway.dialects.openai_stream import OpenAIFraming
from services.gateway.generation.choice import Delta
from services.gateway.http.dialect import Identity


class CompletionFraming(OpenAIFraming):
    """Raw text."""

    def __init__(self, request: CompletionRequest, identity: Identity) -> None:
        super().__init__(request, identity, "cmpl-", "text_completion")
        self._request = request
        self._logprobs = [LegacyLogprobs(identity.prepared.lexicon) for _ in identity.prepared.jobs]

    def begin(self) -> list[bytes]:
        if not self._request.echo:
            return []
        texts = [echoed(prompt, self._prepared.lexicon) for prompt in self._request.texts]
        jobs = range(len(self._prepared.jobs))
        return [self._chunk({"text": texts[index // self._request.n], "index": index}) for index in jobs]

    def _pieces(self, event: Delta) -> list[bytes]:
        extras = traces(self._request, event.pieces)
        if self._request.logprobs is not None:
            extras["logprobs"] = self._logprobs[event.choice].take(event.pieces)
        text = event.text
        return [self._chunk({"text": text, "index": event.choice}, extras)] if text or extras else []

    def _nothing(self, index: int) -> dict[str, object]:
        return {"text": "", "index": index}
