"""A target that replays logits of answers recorded before: for curves that are faster than this machine computes.

It knows the prefixes of the recorded answers and nothing else. That is enough: a walk reads a row only if every token
before it is the target's own, so rows behind a wrong draft are never asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bench.uncomputed import Uncomputed
from services.launcher.forecast.probe import drawn
from shared.law import prefix
from shared.law.sampling import Logits
from shared.model.rows import LlamaError
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
        at = prefix.extend_all(prefix.EMPTY, one.prompt)
        for logits, token in islice(drawn(target, one.prompt, one.sampling), one.tokens):
            script.setdefault(at, logits.copy())
            if token in eog:
                break
            at = prefix.extend(at, token)
        target.truncate(0, 0)
    return script


class Scripted(Uncomputed):
    """Takes no time."""

    max_rows = _MAX_ROWS

    def __init__(self, script: dict[int, Logits], *, n_ctx: int, sequences: int) -> None:
        """`script` is what `record` gave; it must not be empty."""
        super().__init__(n_ctx, len(next(iter(script.values()))), sequences)
        self._script = script

    def logits(self, row: int) -> Logits:
        """The recorded logits after the row's prefix. Raises `LlamaError` for a prefix that was not recorded."""
        try:
            return self._script[self.rows[row].hash]
        except KeyError:
            raise LlamaError("this prefix was not recorded: a scripted target knows its own answers only") from None
