"""A target that computes nothing: it remembers the chains of tokens that it decoded, and knows what follows them."""

from dataclasses import dataclass

from shared.law import prefix
from shared.model.rows import LlamaError, Rows


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """A row of the last decode: its sequence, and the length and hash of the prefix that it ends."""

    sequence: int
    length: int
    hash: int


class Uncomputed:
    """A `Target` for chains but for its logits, which subclasses know."""

    can_roll_back = True
    can_copy = True
    states = None
    reused_graphs = 0
    unified = True
    branches = 0
    max_rows: int

    def __init__(self, n_ctx: int, n_vocab: int, sequences: int) -> None:
        self.n_ctx, self.n_vocab, self.sequences = n_ctx, n_vocab, sequences
        self._chains: list[list[int]] = [[] for _ in range(sequences)]
        self._hashes: list[list[int]] = [[prefix.EMPTY] for _ in range(sequences)]  # of every prefix, from none on
        self.rows: list[DecodedRow] = []

    def decode(self, rows: Rows) -> None:
        """Remember the rows' tokens. Raises `LlamaError` for a tree or a gap, and changes nothing."""
        if not 0 < len(rows) <= self.max_rows or any(len(ids) != 1 for ids in rows.sequences):
            raise LlamaError(f"this decode takes chains of 1 to {self.max_rows} rows")
        ends = [len(tokens) for tokens in self._chains]
        for position, (sequence,) in zip(rows.positions, rows.sequences, strict=True):
            if position != ends[sequence] or position >= self.n_ctx:
                raise LlamaError(f"position {position} does not follow in sequence {sequence}")
            ends[sequence] += 1
        self.rows = []
        for token, (sequence,) in zip(rows.tokens, rows.sequences, strict=True):
            tokens, hashes = self._chains[sequence], self._hashes[sequence]
            tokens.append(token)
            hashes.append(prefix.extend(hashes[-1], token))
            self.rows.append(DecodedRow(sequence, len(tokens), hashes[-1]))

    def tokens_to(self, row: int) -> list[int]:
        """The tokens of the prefix that a row of the last decode ends."""
        return self._chains[self.rows[row].sequence][: self.rows[row].length]

    def use_threads(self, count: int) -> None:
        """It computes nothing."""

    def floor(self, sequence: int) -> int:
        """It forgets nothing."""
        return 0

    def truncate(self, sequence: int, length: int) -> int:
        del self._chains[sequence][length:], self._hashes[sequence][length + 1 :]
        return length

    def clear(self) -> None:
        for sequence in range(self.sequences):
            self.truncate(sequence, 0)

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        self._chains[target] = self._chains[source][:length]
        self._hashes[target] = self._hashes[source][: length + 1]
        return length

    def close(self) -> None:
        """Nothing to free."""
