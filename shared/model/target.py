"""The interface of a model for verifier and drafters: rows in, logits out, sequences that can be cut and copied.

`shared.model.llama.context.Context` implements it; tests use toys.
"""

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shared.law.sampling import Logits
from shared.model.rows import Rows

State: TypeAlias = npt.NDArray[np.uint8]  # a sequence's keys and values, in the target's own form


class Target(Protocol):
    """One context. All calls come from one thread."""

    n_ctx: int  # tokens per sequence
    n_vocab: int
    sequences: int
    branches: int  # spare sequence ids for each sequence, to hold other continuations of it; 0: chains only
    max_rows: int  # rows per decode
    can_roll_back: bool  # False: tokens cannot be dropped (recurrent and hybrid models)
    can_copy: bool  # False: a sequence cannot start from another one's tokens
    unified: bool  # one KV cache for all sequences; False: a stream for each

    @property
    def reused_graphs(self) -> int:
        """How often a decode so far had the shape of the one before, so that its graph was not built anew."""

    @property
    def states(self) -> "States | None":
        """None: a sequence's state cannot leave the cache and come back whole."""

    def decode(self, rows: Rows) -> None:
        """Compute all rows and return when they are computed, so that timing the call gives their cost.

        Raises `LlamaError` and changes nothing if it cannot.
        """

    def use_threads(self, count: int) -> None:
        """Compute the next decodes with `count` threads of the CPU."""

    def logits(self, row: int) -> Logits:
        """Logits of a row of the last decode that asked for them."""

    def floor(self, sequence: int) -> int:
        """The least length to which the sequence can be cut and then be continued, beside 0.

        0 if all tokens are still there; a model with a sliding window may have lost some.
        """

    def truncate(self, sequence: int, length: int) -> int:
        """Forget the sequence's tokens from `length` on. Returns how many it holds then: `length`, or 0 below its
        floor."""

    def clear(self) -> None:
        """Forget all sequences, and set the memory of their keys and values to zero."""

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        """Make `target` hold the first `length` tokens of `source`; it holds those before `start` already.

        Returns how many it holds then, as `truncate` does. `start` above 0 needs a target with branches.
        """


class States(Protocol):
    """Takes states of sequences out of a target's cache into host memory, and back. The target's thread calls it."""

    def size(self, sequence: int) -> int:
        """Bytes of the sequence's state."""

    def save(self, sequence: int) -> State | None:
        """A copy of the sequence's state; the sequence keeps its tokens. None if it cannot be had now."""

    def restore(self, sequence: int, state: State) -> bool:
        """Make the sequence hold exactly the tokens of `state`, bit for bit. False if that cannot be now; then it holds
        none."""
