"""Completions: the echoed prompts, then raw text; or the texts that they add up to."""

from collections.abc import Mapping
from typing import Any

from services.gateway.dialects.completions.request import CompletionRequest, Text
from services.gateway.dialects.openai_answer import Chunk, OpenAIAnswer
from services.gateway.dialects.tokens import LegacyLogprobs, traces
from services.gateway.generation.choice import Delta
from services.gateway.generation.text import Detokenizer
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity
from services.gateway.models.served_model import Lexicon


class CompletionAnswer(OpenAIAnswer):
    """Raw text, marks of thinking and calls included."""

    def __init__(self, request: CompletionRequest, identity: Identity, usage: UsageTally) -> None:
        super().__init__(request.stream_options, identity, usage, "cmpl-", "text_completion", "text_completion")
        self._request = request
        self._logprobs = [LegacyLogprobs(identity.prepared.lexicon) for _ in identity.prepared.jobs]

    def begin(self) -> list[Chunk]:
        if not self._request.echo:
            return []
        texts = [_echoed(prompt, self._prepared.lexicon) for prompt in self._request.texts]
        jobs = range(len(self._prepared.jobs))
        return [self._chunk({"text": texts[index // self._request.n], "index": index}) for index in jobs]

    def _pieces(self, delta: Delta) -> list[Chunk]:
        extras = traces(self._request, delta.pieces)
        if self._request.logprobs is not None:
            extras["logprobs"] = self._logprobs[delta.choice].take(delta.pieces)
        text = delta.text
        return [self._chunk({"text": text, "index": delta.choice}, extras)] if text or extras else []

    def _nothing(self, index: int) -> dict[str, object]:
        return {"text": "", "index": index}

    def _content(self, choice: Mapping[str, Any]) -> dict[str, object]:
        return {"text": choice["text"], "index": choice["index"]}


def _echoed(prompt: Text, lexicon: Lexicon) -> str:
    if isinstance(prompt, str):
        return prompt
    detokenizer = Detokenizer(lexicon.piece)
    return "".join(map(detokenizer.push, prompt)) + detokenizer.flush()
