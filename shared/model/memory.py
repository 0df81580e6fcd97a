"""How much of a device's memory a model takes, and how much of the model fits: arithmetic on sizes, pure.

It counts the weights, the cache of keys and values, and the work space of one decode. All are estimates from the files,
as llama.cpp lays them out (`llama-kv-cache.cpp`, `llama-context.cpp`); llama.cpp has the last word.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final

from shared.model.model_sizes import ModelSizes
from shared.model.rows import BRANCH_CELLS, MAX_LEAVES

NUMBER_BYTES: Final = 2.0  # of keys and values in 16 bits, our default in every exactness
ROWS: Final = 512  # most rows of one decode, for which llama.cpp sizes its work space
RESERVE: Final = 256 << 20  # for the backend itself, and for what else runs on the device
USUAL_CONTEXT: Final = 4096  # tokens of a request unless --ctx says otherwise
LEAST_CONTEXT: Final = 512  # a model with room only for shorter conversations does not fit
_VECTORS: Final = 8  # vectors of the embedding's width that a layer holds at once, roughly
_MASK_BYTES: Final = 2  # bytes of the mask that says whether a row sees a cell
_WINDOW_STEP: Final = 256  # a window's cells are rounded up to a multiple of this


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a context is made: the arguments of `shared.model.llama.context.Context`, and what they mean there."""

    context: int  # tokens of a request
    parallel: int
    unified: bool = True
    branches: int = MAX_LEAVES - 1
    swa_full: bool = True
    outputs: int = ROWS
    number_bytes: float = NUMBER_BYTES

    @property
    def cells(self) -> int:
        """The cells of a layer with full attention."""
        return (self.context + (self.branches * BRANCH_CELLS if self.unified else 0)) * self.parallel

    def window_cells(self, window: int) -> int:
        """The cells of a layer with a sliding window; without `swa_full` there are no branches."""
        if self.swa_full:
            return self.cells
        streams = 1 if self.unified else self.parallel
        least = window * (self.parallel // streams) + ROWS
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

    Layers are counted as `--gpu-layers` counts them: the output after the last layer counts as a layer too, and goes to
    the device first.
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


def number_of_layers(model: ModelSizes) -> int:
    """The number of layers, as `--gpu-layers` counts them."""
    return len(model.layers) + 1


def cache_bytes(model: ModelSizes, layout: Layout, layers: int) -> int:
    """Keys and values of the last `layers` layers."""
    first = max(0, len(model.layers) - layers)
    numbers = sum(
        count * (layout.window_cells(model.window) if windowed else layout.cells)
        for count, windowed in zip(model.cache[first:], model.windowed[first:], strict=True)
    )
    return int(numbers * layout.number_bytes)


def compute_bytes(model: ModelSizes, layout: Layout) -> int:
    """The work space of one decode: the vectors of all rows and their masks, and then the logits."""
    streams = 1 if layout.unified else layout.parallel
    seen = layout.cells + (layout.window_cells(model.window) if any(model.windowed) else 0)
    vectors = ROWS * (_VECTORS * model.embedding * 4 + seen // streams * _MASK_BYTES)
    return max(vectors, (layout.outputs * model.n_tokens + ROWS * model.embedding) * 4)


def need(model: ModelSizes, layout: Layout, layers: int, *, on_cpu: bool) -> Need:
    """The memory of a device that computes `layers` layers, as `--gpu-layers` counts them.

    The input embeddings stay with the CPU. If they are also the output's weights, a GPU with these has a second copy.
    """
    if not layers:
        return Need(0, 0, 0)
    first = max(0, number_of_layers(model) - layers)
    table = model.input if on_cpu or model.tied else 0
    weights = sum(model.layers[first:]) + model.output + table
    return Need(weights, cache_bytes(model, layout, layers - 1), compute_bytes(model, layout))


def need_of_rest(model: ModelSizes, layout: Layout, layers: int) -> Need:
    """The CPU's memory beside a GPU that computes `layers` layers; almost nothing beside one that computes all."""
    first = number_of_layers(model) - layers
    if first <= 0:
        return Need(0, 0, 0)
    cache = cache_bytes(model, layout, len(model.layers)) - cache_bytes(model, layout, max(0, layers - 1))
    weights = model.input + sum(model.layers[:first]) + (0 if layers else model.output)
    return Need(weights, cache, compute_bytes(model, layout))


def layers_within(model: ModelSizes, layout: Layout, free: int) -> int:
    """How many of the last layers a GPU with `free` bytes holds with their cache."""
    counts = range(1, number_of_layers(model) + 1)
    return bisect_right(counts, free - RESERVE, key=lambda count: need(model, layout, count, on_cpu=False).total)


def context_within(model: ModelSizes, layout: Layout, free: int, layers: int, *, on_cpu: bool) -> int:
    """How many tokens each request of `layout` may have in `free` bytes, at most what the model was trained for."""
    trained = model.context or USUAL_CONTEXT
    sizes = range(1, trained + 1)
    return bisect_right(
        sizes,
        free - RESERVE,
        key=lambda size: need(model, replace(layout, context=size), layers, on_cpu=on_cpu).total,
    )


def fit(model: ModelSizes, free: int, *, on_cpu: bool, parallel: int) -> Fit:
    """How much of `model` fits in `free` bytes for `parallel` requests at once.

    Part of the layers may stay off a GPU (`--gpu-layers`), but the CPU holds all or none. Of a model with sliding
    windows it keeps all tokens if that leaves the usual context, else only the windows.
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
    # All layers fit, but not the context.
    return Fit(0 if on_cpu else min(count - 1, layers_within(model, layout, free)), count, usual)


def windows_alone(layout: Layout) -> Layout:
    """The layout that keeps only what a sliding window needs; requests then share no cells."""
    return replace(layout, swa_full=False, branches=0)


def bytes_per_token(model: ModelSizes) -> int:
    """Keys and values of one token in all layers."""
    return int(sum(model.cache) * NUMBER_BYTES)
