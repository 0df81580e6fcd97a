"""Keeps the prompts and outputs of requests as text to copy for later ones: bounded per model, oldest dropped first."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from services.drafter.suffix import SuffixIndex

_TOKENS: Final = 1 << 17  # tokens per model, 6 MB; dropping the older half takes about 20 ms
_MODELS: Final = 4  # most targets; each has its own index, because token ids differ
_PROMPT_TAIL: Final = 1024  # last tokens of a prompt; indexing them takes milliseconds in which nothing else is drafted
_KNOWN: Final = 64  # latest requests whose continuation is recognised
_OVERLAP: Final = 16  # tokens repeated before the new part of a conversation, so that matches can span the border


class Store:
    """An index per model of the tails of prompts and of outputs."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[SuffixIndex, deque[tuple[int, int]]]] = {}

    def index(self, model: str) -> SuffixIndex:
        """The index of a model, which later calls of `add` extend."""
        return self._model(model)[0]

    def add(self, model: str, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Keep a request. If its prompt continues an earlier request, only the new part is kept."""
        index, known = self._model(model)
        seen = next((size for size, key in known if size <= len(prompt) and hash(tuple(prompt[:size])) == key), 0)
        start = max(len(prompt) - _PROMPT_TAIL, seen - _OVERLAP, 0)
        index.extend((*prompt[start:], *output))
        whole = (*prompt, *output)
        known.appendleft((len(whole), hash(whole)))

    def _model(self, model: str) -> tuple[SuffixIndex, deque[tuple[int, int]]]:
        found = self._models.pop(model, None) or (SuffixIndex(_TOKENS), deque(maxlen=_KNOWN))
        self._models[model] = found  # ordered by last use
        while len(self._models) > _MODELS:
            del self._models[next(iter(self._models))]
        return found
