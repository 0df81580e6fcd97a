"""How many layers of a model a device computes, or one sentence that says why it cannot. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from shared.machine.devices import CPU, Device
from shared.model import memory
from shared.model.memory import LEAST_CONTEXT, RESERVE, Layout, Need, gb
from shared.model.model_sizes import ModelSizes

AUTO: Final = "auto"
ALL: Final = "all"
_FOR_MEMORY: Final = re.compile(r"alloc|memory")
_UNKNOWN: Final = 1 << 62
_CONTEXT_STEP: Final = 256  # proposed contexts are multiples of it


def is_layer_count(text: str) -> bool:
    """Whether the text is a value of `--gpu-layers`: auto, all or a number."""
    return text in (AUTO, ALL) or (text.isascii() and text.isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """`layers` of a model of `of` on the device `name`, the rest on the CPU; counted as `--gpu-layers` counts them.

    `free` and `free_here` are the bytes that the device and the CPU's memory have left.
    """

    model: ModelSizes
    layout: Layout
    name: str
    layers: int
    free: int
    free_here: int

    @property
    def of(self) -> int:
        return memory.number_of_layers(self.model)

    @property
    def on_cpu(self) -> bool:
        return self.name == CPU

    @property
    def computes_here(self) -> bool:
        """Whether the CPU computes some layers, or all of them."""
        return self.on_cpu or self.layers < self.of

    @property
    def need(self) -> Need:
        """The memory that the device needs."""
        return memory.need(self.model, self.layout, self.layers, on_cpu=self.on_cpu)

    @property
    def rest(self) -> Need:
        """The CPU's memory that is needed beside a GPU."""
        if self.on_cpu:
            return Need(0, 0, 0)
        return memory.need_of_rest(self.model, self.layout, self.layers)

    def __str__(self) -> str:
        share = f"all {self.of} layers" if self.layers == self.of else f"{self.layers} of {self.of} layers"
        rest = "" if self.layers == self.of else f", the rest on {CPU}"
        windows = "" if self.layout.swa_full else "; the cache keeps only sliding windows"
        free = f", and {gb(self.free)} are free" if self.free < _UNKNOWN else ""
        return f"{share} on {self.name}{rest}: {self.need}{free}{windows}"

    def failure(self, error: str) -> str:
        """The message for llama.cpp's refusal, with our figures if it lacked memory."""
        return f"{error}; draftmesh estimates {self}" if _FOR_MEMORY.search(error) else error

    def shortage(self) -> str:
        """Why it does not fit, with figures and what would help; empty if it fits."""
        if self.need.total > self.free:
            return self._sentence(self.need, self.name, self.free)
        if self.rest.total > self.free_here:
            return self._sentence(self.rest, CPU, self.free_here)
        return ""

    def _sentence(self, need: Need, name: str, free: int) -> str:
        where = "of memory" if name == CPU else f"on {name}"
        beside = f" beside what lies on {self.name}" if name == CPU and not self.on_cpu else ""
        return f"it needs {gb(need.total)} {where}{beside} ({need}), and {gb(free)} are free; {self._help(name)}"

    def _help(self, name: str) -> str:
        """What would fit instead; each change suffices alone."""
        ways = []
        if name != CPU and (layers := memory.layers_within(self.model, self.layout, self.free)):
            ways.append(f"--gpu-layers {layers} (the CPU computes the rest)")
        if name == self.name:
            context = memory.context_within(self.model, self.layout, self.free, self.layers, on_cpu=self.on_cpu)
            context -= context % _CONTEXT_STEP
            if LEAST_CONTEXT <= context < self.layout.context:
                ways.append(f"--ctx {context}")
            parallel = max(filter(self._fits, range(1, self.layout.parallel)), default=0)
            if parallel:
                ways.append(f"--parallel {parallel}")
            room = self.free - RESERVE - self.need.cache - self.need.compute
            if room > self.need.weights / 8:  # no quantisation has fewer than two bits
                ways.append(f"a quantisation of at most {gb(room)}")
        return f"what would fit: {', or '.join(ways)}" if ways else "use a smaller model"

    def _fits(self, parallel: int) -> bool:
        fewer = replace(self, layout=replace(self.layout, parallel=parallel))
        return fewer.need.total + RESERVE <= self.free


def room(devices: Sequence[Device]) -> int:
    """Bytes that are free on `devices` together; practically infinite if one does not report its memory."""
    return sum(device.memory_free if device.memory_total else _UNKNOWN for device in devices)


def place(model: ModelSizes, layout: Layout, wanted: str, name: str, free: int, free_here: int) -> Offload:
    """Where the layers of `model` go if `--gpu-layers` is `wanted` and the device `name` has `free` bytes left.

    `auto` puts as many layers on a GPU as fit with their cache and work space. `free_here` is the CPU's memory.
    """
    layers = count = memory.number_of_layers(model)
    if name != CPU and wanted == AUTO:
        layers = memory.layers_within(model, layout, free)
    elif name != CPU and wanted != ALL:
        layers = min(int(wanted), count)
    return Offload(model=model, layout=layout, name=name, layers=layers, free=free, free_here=free_here)


def windows_or_all(model: ModelSizes, layout: Layout, name: str, free: int) -> Layout:
    """`layout`, or if the device cannot hold all of it, the layout that keeps only sliding windows.

    Tokens outside a window help only requests that start from earlier points, and trees.
    """
    whole = memory.need(model, layout, memory.number_of_layers(model), on_cpu=name == CPU)
    alone = memory.windows_alone(layout)
    saves = any(model.windowed) and alone.window_cells(model.window) < alone.cells
    return alone if saves and whole.total + RESERVE > free else layout
