"""Draws from rows of logits, as all services make them: in native code, or with numpy where that was not compiled.

Both draw the same tokens (`docs/rationale.md` says what is equal to the bit): `shared/law/sampling.py` defines the law,
and tests compare the native code with it.
"""

from typing import Final

from shared.law import native, sampling
from shared.law.history import History
from shared.law.sampling import Draw, Logits, Mask
from shared.wire.messages import Sampling

NATIVE: Final = not native.FAULT


def draw(logits: Logits, parameters: Sampling, history: History | None, mask: Mask | None, offset: int) -> Draw:
    """The token at `offset` by the law of the float32 `logits` of shape [n_vocab]; see `sampling.law` and
    `sampling.draw`. Raises `BrokenLogits`."""
    # Of a row as it is numpy finds the largest logit faster than C does, which keeps the peak of every block.
    untouched = mask is None and history is None and not parameters.logit_bias and not parameters.banned
    if NATIVE and not (untouched and sampling.is_greedy(parameters)):
        return native.draw(logits, parameters, history, mask, offset)
    return sampling.draw(sampling.law(logits, parameters, history, mask), parameters.seed, offset)


def ranked(
    logits: Logits, parameters: Sampling, history: History | None, offset: int, count: int
) -> list[tuple[int, float]]:
    """The draw at `offset` and the `count` - 1 tokens that came closest, with their scores; see `sampling.ranked`.
    Raises `BrokenLogits`."""
    rank = native.ranked if NATIVE else sampling.ranked
    return rank(logits, parameters, history, offset, count)


def log_probabilities(logits: Logits, token: int, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The target's own log-probability of `token`, and the `top` likeliest ids with theirs, best first; see
    `sampling.log_probabilities`. Raises `BrokenLogits`."""
    compute = native.log_probabilities if NATIVE else sampling.log_probabilities
    return compute(logits, token, top)
