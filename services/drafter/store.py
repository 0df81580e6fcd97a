"""Keeps the prompts and outputs of requests as text to copy for later ones of the same caller: bounded, oldest dropped
first.

One caller's text never becomes another's draft: an answer's draft statistics would tell that somebody else has had the
same text, token by token.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from services.drafter.suffix import SuffixIndex

_TOKENS: Final = 1 << 17  # tokens per index, 6 MB; dropping the older half takes about 20 ms
_INDEXES: Final = 16  # of the pairs of model and caller used last; models have their own, because token ids differ
_PROMPT_TAIL: Final = 1024  # last tokens of a prompt; indexing them takes milliseconds in which nothing else is drafted
_KNOWN: Final = 64  # latest requests whose continuation is recognised
_OVERLAP: Final = 16  # tokens repeated before the new part of a conversation, so that matches can span the border


class Store:
    """An index per model and caller of the tails of prompts and of outputs."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str], tuple[SuffixIndex, deque[tuple[int, int]]]] = {}

    def index(self, model: str, caller: str) -> SuffixIndex:
        """The index of a caller's requests to a model, which later calls of `add` extend."""
        return self._found(model, caller)[0]

    def add(self, model: str, caller: str, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Keep a request. If its prompt continues an earlier request, only the new part is kept."""
        index, known = self._found(model, caller)
        seen = next((size for size, key in known if size <= len(prompt) and hash(tuple(prompt[:size])) == key), 0)
        start = max(len(prompt) - _PROMPT_TAIL, seen - _OVERLAP, 0)
        index.extend((*prompt[start:], *output))
        whole = (*prompt, *output)
        known.appendleft((len(whole), hash(whole)))

    def _found(self, model: str, caller: str) -> tuple[SuffixIndex, deque[tuple[int, int]]]:
        found = self._indexes.pop((model, caller), None) or (SuffixIndex(_TOKENS), deque(maxlen=_KNOWN))
        self._indexes[model, caller] = found  # ordered by last use
        while len(self._indexes) > _INDEXES:
            del self._indexes[next(iter(self._indexes))]
        return found
