"""What a model takes of a device's memory, and which part of it fits: arithmetic on sizes, pure.

What is counted: the weights, the cache of keys and values, and the space that one decode computes in. All are estimates
from the files, as llama.cpp lays them out (`llama-kv-cache.cpp`, `llama-context.cpp`); llama.cpp has the last word.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final, Protocol

from shared.model.rows import BRANCH_CELLS, MAX_LEAVES

NUMBER_BYTES: Final = 2.0  # of keys and values in 16 bits, our default in every exactness
ROWS: Final = 512  # most rows of one decode, by which llama.cpp sizes what it computes in
RESERVE: Final = 256 << 20  # for the backend itself, and for what else runs on the device
USUAL_CONTEXT: Final = 4096  # tokens of a request unless --ctx says otherwise
LEAST_CONTEXT: Final = 512  # a model that holds shorter conversations only does not fit
_VECTORS: Final = 8  # of the embedding's width that are alive at once in a layer, roughly
_MASK_BYTES: Final = 2  # of what says whether a row sees a cell
_WINDOW_STEP: Final = 256  # cells of a window's cache are rounded up to that


class Sizes(Protocol):
    """What is needed of a model; `shared.model.model_sizes.ModelSizes` has it."""

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
    def window(self) -> int: ...
    @property
    def windowed(self) -> tuple[bool, ...]: ...
    @property
    def n_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a context is made: the arguments of `shared.model.llama.context.Context`, and what they mean there."""

    context: int  # tokens of a request
    parallel: int
    unified: bool = True
    branches: int = MAX_LEAVES - 1
    swa_full: bool = True
    rows: int = ROWS
    outputs: int = ROWS
    number_bytes: float = NUMBER_BYTES

    @property
    def cells(self) -> int:
        """Of a layer that sees everything."""
        return (self.context + (self.branches * BRANCH_CELLS if self.unified else 0)) * self.parallel

    def window_cells(self, window: int) -> int:
        """Of a layer that sees a sliding window; without `swa_full` there are no branches."""
        if self.swa_full:
            return self.cells
        streams = 1 if self.unified else self.parallel
        least = window * (self.parallel // streams) + self.rows
        return min(self.cells, -(-least // _WINDOW_STEP) * _WINDOW_STEP * streams)


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes of a device's memory."""

    weights: int
    cache: int
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute

    def __str__(self) -> str:
        return f"{gb(self.weights)} of weights, {gb(self.cache)} of cache and {gb(self.compute)} to compute in"


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


def gb(amount: float) -> str:
    """An amount of bytes for people."""
    return f"{amount / 1e9:.1f} GB" if amount >= 5e7 else f"{amount / 1e6:.0f} MB"


def number_of_layers(model: Sizes) -> int:
    """As `--gpu-layers` counts them."""
    return len(model.layers) + 1


def cache_bytes(model: Sizes, layout: Layout, layers: int) -> int:
    """Keys and values of the last `layers` layers."""
    first = max(0, len(model.layers) - layers)
    numbers = sum(
        count * (layout.window_cells(model.window) if windowed else layout.cells)
        for count, windowed in zip(model.cache[first:], model.windowed[first:], strict=True)
    )
    return int(numbers * layout.number_bytes)


def compute_bytes(model: Sizes, layout: Layout) -> int:
    """What one decode computes in: the vectors of all rows and which cells they see, and after that the logits."""
    streams = 1 if layout.unified else layout.parallel
    seen = layout.cells + (layout.window_cells(model.window) if any(model.windowed) else 0)
    vectors = layout.rows * (_VECTORS * model.embedding * 4 + seen // streams * _MASK_BYTES)
    return max(vectors, (layout.outputs * model.n_tokens + layout.rows * model.embedding) * 4)


def need(model: Sizes, layout: Layout, layers: int, *, on_cpu: bool) -> Need:
    """What a device takes that computes `layers` layers, as `--gpu-layers` counts them.

    The table of the input's vectors stays with the CPU. Where it also stands for the output's weights, a GPU that holds
    these has a second one.
    """
    if not layers:
        return Need(0, 0, 0)
    first = max(0, number_of_layers(model) - layers)
    table = model.input if on_cpu or model.tied else 0
    weights = sum(model.layers[first:]) + model.output + table
    return Need(weights, cache_bytes(model, layout, layers - 1), compute_bytes(model, layout))


def need_of_rest(model: Sizes, layout: Layout, layers: int) -> Need:
    """What the CPU takes beside a GPU that computes `layers` layers; beside one that has them all, next to nothing."""
    first = number_of_layers(model) - layers
    if first <= 0:
        return Need(0, 0, 0)
    cache = cache_bytes(model, layout, len(model.layers)) - cache_bytes(model, layout, max(0, layers - 1))
    weights = model.input + sum(model.layers[:first]) + (0 if layers else model.output)
    return Need(weights, cache, compute_bytes(model, layout))


def layers_within(model: Sizes, layout: Layout, free: int) -> int:
    """How many of the last layers a GPU with `free` bytes holds with their cache."""
    counts = range(1, number_of_layers(model) + 1)
    return bisect_right(counts, free - RESERVE, key=lambda count: need(model, layout, count, on_cpu=False).total)


def context_within(model: Sizes, layout: Layout, free: int, layers: int, *, on_cpu: bool) -> int:
    """How many tokens each request of `layout` may have in `free` bytes, at most what the model was trained for."""
    trained = model.context or USUAL_CONTEXT
    sizes = range(1, trained + 1)
    return bisect_right(
        sizes,
        free - RESERVE,
        key=lambda size: need(model, replace(layout, context=size), layers, on_cpu=on_cpu).total,
    )


def fit(model: Sizes, free: int, *, on_cpu: bool, parallel: int) -> Fit:
    """How much of `model` fits in `free` bytes for `parallel` requests at once.

    On a GPU layers may stay outside (`--gpu-layers`); the CPU holds a model or does not. Of a model with sliding
    windows all is kept if that leaves the usual context, else the windows alone.
    """
    count = number_of_layers(model)
    usual = min(model.context or USUAL_CONTEXT, USUAL_CONTEXT)
    layout = Layout(context=usual, parallel=parallel)
    if any(model.windowed):
        context = context_within(model, layout, free, count, on_cpu=on_cpu)
        if context >= usual:
            return Fit(count, count, context)
        layout = windows_alone(layout)
    context = context_within(model, layout, free, count, on_cpu=on_cpu)
    if context >= min(usual, LEAST_CONTEXT):
        return Fit(count, count, context)
    # With all layers it would be whole, but for its context.
    return Fit(0 if on_cpu else min(count - 1, layers_within(model, layout, free)), count, usual)


def windows_alone(layout: Layout) -> Layout:
    """The layout that keeps no more of a sliding window than must be; requests then share no cells."""
    return replace(layout, swa_full=False, branches=0)


def bytes_per_token(model: Sizes) -> int:
    """Keys and values of one token in all layers."""
    return int(sum(model.cache) * NUMBER_BYTES)
