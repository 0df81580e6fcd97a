"""What requests said and were told, kept for those that come later: per model, bounded, the oldest goes first."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from services.drafter.suffix import SuffixIndex

_TOKENS: Final = 1 << 17  # per model, 6 MB; making room takes some 20 ms, once in half as many tokens
_MODELS: Final = 4  # targets that a drafter remembers; token ids of one mean nothing to another
_PROMPT_TAIL: Final = 1024  # of a prompt: a few milliseconds, during which no other request gets drafts
_KNOWN: Final = 64  # requests whose continuation is recognised
_OVERLAP: Final = 16  # tokens repeated before the new part of a conversation, so that matches cross the seam


class Store:
    """An index per model of the tails of prompts and of outputs."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[SuffixIndex, deque[tuple[int, int]]]] = {}

    def index(self, model: str) -> SuffixIndex:
        """The index for a model; it goes on being extended."""
        return self._model(model)[0]

    def add(self, model: str, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Keep a request. Of a prompt that continues an earlier request only what is new is kept."""
        index, known = self._model(model)
        seen = next((size for size, key in known if size <= len(prompt) and hash(tuple(prompt[:size])) == key), 0)
        start = max(len(prompt) - _PROMPT_TAIL, seen - _OVERLAP, 0)
        index.extend((*prompt[start:], *output))
        whole = (*prompt, *output)
        known.appendleft((len(whole), hash(whole)))

    def _model(self, model: str) -> tuple[SuffixIndex, deque[tuple[int, int]]]:
        found = self._models.pop(model, None) or (SuffixIndex(_TOKENS), deque(maxlen=_KNOWN))
        self._models[model] = found  # the last is the one used latest
        while len(self._models) > _MODELS:
            del self._models[next(iter(self._models))]
        return found
