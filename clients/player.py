"""A target that plays answers: it knows what to say from the text of the prompt, and computes nothing.

Verifier, engine and constraints around it are the product's.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from bench.uncomputed import Uncomputed
from shared.law.sampling import Logits
from shared.model.llama.vocabulary import Vocabulary

_SURE: Final = 60.0  # the lead of the played token in nats: at no temperature another one is drawn
_ROWS: Final = 4096
_PROMPTS: Final = 64


class Player(Uncomputed):
    """An answer that was led away from what is played ends."""

    max_rows = _ROWS

    def __init__(
        self, vocabulary: Vocabulary, answer: Callable[[str], str], turn: str, *, n_ctx: int, sequences: int
    ) -> None:
        """`turn` is the text with which every prompt ends; `answer` maps a prompt's text to what is said."""
        super().__init__(n_ctx, vocabulary.n_tokens, sequences)
        self._vocabulary = vocabulary
        self._turn = vocabulary.tokenize(turn)
        self._end = min(vocabulary.eog)
        self._answer = answer
        self._answers = lru_cache(_PROMPTS)(self._tokens)

    def logits(self, row: int) -> Logits:
        """Those that make the next token of what is played certain."""
        logits = np.zeros(self.n_vocab, np.float32)
        logits[self._next(self.tokens_to(row))] = _SURE
        return logits

    def _next(self, tokens: Sequence[int]) -> int:
        size = len(self._turn)
        start = next((end for end in range(len(tokens), size - 1, -1) if tokens[end - size : end] == self._turn), 0)
        said, wanted = tokens[start:], self._answers(tuple(tokens[:start]))
        follows = len(said) < len(wanted) and list(wanted[: len(said)]) == said
        return wanted[len(said)] if follows else self._end

    def _tokens(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        text = b"".join(self._vocabulary.piece(token) for token in prompt).decode(errors="replace")
        return tuple(self._vocabulary.tokenize(self._answer(text)))
