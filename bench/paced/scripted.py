"""A target that replays logits of answers recorded before: for curves that are faster than this machine computes.

It knows the prefixes of the recorded answers and nothing else. That is enough: a walk reads a row only if every token
before it is the target's own, so rows behind a wrong draft are never asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.law import prefix
from shared.law.sampling import Logits, draw, law
from shared.model.rows import LlamaError, Rows
from shared.model.target import Target
from shared.wire.messages import Sampling

_MAX_ROWS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One request to record."""

    prompt: tuple[int, ...]
    sampling: Sampling
    tokens: int


def record(target: Target, recordings: Sequence[Recording], eog: frozenset[int]) -> dict[int, Logits]:
    """Logits by the hash of the prefix after which they come, for plain answers to all `recordings`.

    Uses sequence 0 and leaves it empty. An answer that ends early is recorded to its end.
    """
    script: dict[int, Logits] = {}
    for one in recordings:
        context = list(one.prompt)
        computed = 0
        for offset in range(one.tokens):
            row = _compute(target, context, computed)
            computed = len(context)
            logits = target.logits(row)
            script.setdefault(prefix.extend_all(prefix.EMPTY, context), logits.copy())
            token = draw(law(logits, one.sampling), one.sampling.seed, offset).token
            if token in eog:
                break
            context.append(token)
        target.truncate(0, 0)
    return script


def _compute(target: Target, context: list[int], start: int) -> int:
    """Decode the context from `start` on; the row of its last token."""
    row = 0
    for first in range(start, len(context), target.max_rows):
        rows = Rows()
        for position in range(first, min(first + target.max_rows, len(context))):
            row = rows.add(context[position], position, (0,), position == len(context) - 1)
        target.decode(rows)
    return row


class Scripted:
    """A `Target` for chains that takes no time."""

    can_roll_back = True
    can_copy = True
    unified = True
    branches = 0
    max_rows = _MAX_ROWS

    def __init__(self, script: dict[int, Logits], *, n_ctx: int, sequences: int) -> None:
        """`script` is what `record` gave; it must not be empty."""
        self.n_ctx = n_ctx
        self.sequences = sequences
        self.n_vocab = len(next(iter(script.values())))
        self._script = script
        self._hashes: list[list[int]] = [[prefix.EMPTY] for _ in range(sequences)]  # of every prefix in the cache
        self._rows: list[int] = []

    def decode(self, rows: Rows) -> None:
        """Remember the prefix that each row ends. Raises `LlamaError` for a tree or a gap, and changes nothing."""
        if not 0 < len(rows) <= self.max_rows or any(len(ids) != 1 for ids in rows.sequences):
            raise LlamaError(f"a scripted decode takes chains of 1 to {self.max_rows} rows")
        ends = {sequence: len(hashes) - 1 for sequence, hashes in enumerate(self._hashes)}
        for position, (sequence,) in zip(rows.positions, rows.sequences, strict=True):
            if position != ends[sequence] or position >= self.n_ctx:
                raise LlamaError(f"position {position} does not follow in sequence {sequence}")
            ends[sequence] += 1
        self._rows = []
        for token, (sequence,) in zip(rows.tokens, rows.sequences, strict=True):
            hashes = self._hashes[sequence]
            hashes.append(prefix.extend(hashes[-1], token))
            self._rows.append(hashes[-1])

    def logits(self, row: int) -> Logits:
        """The recorded logits after the row's prefix. Raises `LlamaError` for a prefix that was not recorded."""
        try:
            return self._script[self._rows[row]]
        except KeyError:
            raise LlamaError("this prefix was not recorded: a scripted target knows its own answers only") from None

    def floor(self, sequence: int) -> int:
        """It forgets nothing."""
        return 0

    def truncate(self, sequence: int, length: int) -> int:
        del self._hashes[sequence][length + 1 :]
        return length

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        self._hashes[target] = self._hashes[source][: length + 1]
        return length

    def close(self) -> None:
        """Nothing to free."""
