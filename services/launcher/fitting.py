"""Which part of a model fits a device, with how long requests: arithmetic on sizes, pure.

What is counted: the weights, the cache of keys and values at two bytes a number (16 bits, our default in every
exactness), and the space that one decode computes in. All are estimates from the files; llama.cpp has the last word.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol

from shared.rows import BRANCH_CELLS, MAX_LEAVES

NUMBER_BYTES: Final = 2
ROWS: Final = 512  # most rows of one decode, by which llama.cpp sizes what it computes in
RESERVE: Final = 256 << 20  # for the backend itself, and for what else runs on the device
USUAL_CONTEXT: Final = 4096  # tokens of a request unless --ctx says otherwise
LEAST_CONTEXT: Final = 512  # a model that holds shorter conversations only does not fit
_BRANCHES: Final = (MAX_LEAVES - 1) * BRANCH_CELLS  # cells beyond a request's context, for the branches of its guesses
_VECTORS: Final = 8  # of the embedding's width that are alive at once in a layer, roughly


class Sizes(Protocol):
    """What is needed of a model; `model_facts.Facts` has it."""

    @property
    def context(self) -> int: ...
    @property
    def embedding(self) -> int: ...
    @property
    def layers(self) -> tuple[int, ...]: ...
    @property
    def output(self) -> int: ...
    @property
    def input(self) -> int: ...
    @property
    def tied(self) -> bool: ...
    @property
    def cache(self) -> tuple[int, ...]: ...
    @property
    def n_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Fit:
    """`layers` of `of` fit, and every request may then have `context` tokens.

    Layers are counted as `--gpu-layers` counts them: what follows the last one is a layer too, and goes first.
    """

    layers: int
    of: int
    context: int

    @property
    def whole(self) -> bool:
        return self.layers == self.of

    def __str__(self) -> str:
        if self.whole:
            return f"whole, {self.context} tokens"
        return f"{self.layers} of {self.of} layers" if self.layers else "no"


def cache_bytes(model: Sizes, tokens: int) -> int:
    """Keys and values of `tokens` tokens in all layers."""
    return sum(model.cache) * NUMBER_BYTES * tokens


def compute_bytes(model: Sizes) -> int:
    """What one decode computes in: logits and vectors of all its rows, in 32 bits."""
    return ROWS * (model.n_tokens + _VECTORS * model.embedding) * 4


def fit(model: Sizes, free: int, *, on_cpu: bool, parallel: int) -> Fit:
    """How much of `model` fits in `free` bytes for `parallel` requests at once.

    On a GPU the table of the input's vectors stays outside, and layers may stay outside too (`--gpu-layers`); the CPU
    holds a model or does not.
    """
    count = len(model.layers) + 1
    room = free - compute_bytes(model) - RESERVE
    trained = model.context or USUAL_CONTEXT
    weights = sum(model.layers) + (model.output + model.input if on_cpu else _output(model))
    per_token = cache_bytes(model, 1) * parallel
    context = min(trained, (room - weights) // per_token - _BRANCHES) if per_token else trained
    if room >= weights and context >= min(trained, LEAST_CONTEXT):
        return Fit(count, count, context)
    context = min(trained, USUAL_CONTEXT)
    return Fit(0 if on_cpu else _layers(model, room, (context + _BRANCHES) * parallel), count, context)


def _output(model: Sizes) -> int:
    """What goes to a GPU first. A table that also stands for the output's weights is then held twice."""
    return model.output + (model.input if model.tied else 0)


def _layers(model: Sizes, room: int, tokens: int) -> int:
    """The last so many layers that fit with their cache of `tokens` tokens."""
    needs = [_output(model)]
    for weights, numbers in zip(reversed(model.layers), reversed(model.cache), strict=True):
        needs.append(weights + numbers * NUMBER_BYTES * tokens)
    fitting = sum(total <= room for total in accumulate(needs))
    return min(fitting, len(model.layers))  # with all of them it would be whole, and that was tried
