"""A target that plays answers: it knows what to say from the text of the prompt, and computes nothing.

Verifier, engine and constraints around it are the product's.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from shared.law.sampling import Logits
from shared.model.llama.vocabulary import Vocabulary
from shared.model.rows import LlamaError, Rows

_SURE: Final = 60.0  # the lead of the played token in nats: at no temperature another one is drawn
_ROWS: Final = 4096
_PROMPTS: Final = 64


class Player:
    """A `Target` for chains. An answer that was led away from what is played ends."""

    can_roll_back = True
    can_copy = True
    unified = True
    branches = 0
    max_rows = _ROWS

    def __init__(
        self, vocabulary: Vocabulary, answer: Callable[[str], str], turn: str, *, n_ctx: int, sequences: int
    ) -> None:
        """`turn` is the text with which every prompt ends; `answer` maps a prompt's text to what is said."""
        self.n_ctx = n_ctx
        self.n_vocab = vocabulary.n_tokens
        self.sequences = sequences
        self._vocabulary = vocabulary
        self._turn = vocabulary.tokenize(turn)
        self._end = min(vocabulary.eog)
        self._answer = answer
        self._answers = lru_cache(_PROMPTS)(self._tokens)
        self._cells: list[list[int]] = [[] for _ in range(sequences)]
        self._rows: list[tuple[int, int]] = []  # sequence and length of the prefix that the row ends

    def decode(self, rows: Rows) -> None:
        """Remember the rows' tokens. Raises `LlamaError` for a tree or a gap, and changes nothing."""
        if not 0 < len(rows) <= self.max_rows or any(len(ids) != 1 for ids in rows.sequences):
            raise LlamaError(f"a played decode takes chains of 1 to {self.max_rows} rows")
        ends = [len(cells) for cells in self._cells]
        for position, (sequence,) in zip(rows.positions, rows.sequences, strict=True):
            if position != ends[sequence] or position >= self.n_ctx:
                raise LlamaError(f"position {position} does not follow in sequence {sequence}")
            ends[sequence] += 1
        self._rows = []
        for token, (sequence,) in zip(rows.tokens, rows.sequences, strict=True):
            self._cells[sequence].append(token)
            self._rows.append((sequence, len(self._cells[sequence])))

    def logits(self, row: int) -> Logits:
        """Those that make the next token of what is played certain."""
        sequence, length = self._rows[row]
        logits = np.zeros(self.n_vocab, np.float32)
        logits[self._next(self._cells[sequence][:length])] = _SURE
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

    def floor(self, sequence: int) -> int:
        """It forgets nothing."""
        return 0

    def truncate(self, sequence: int, length: int) -> int:
        del self._cells[sequence][length:]
        return length

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        self._cells[target] = self._cells[source][:length]
        return length

    def close(self) -> None:
        """Nothing to free."""
