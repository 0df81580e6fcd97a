"""The first layers of a model as a model of its own, kept in the cache between runs.

It has the whole one's vocabulary, widths and kernels, and a fraction of its work. What it says is of no use, yet it
depends on every token before it, and a copy in fewer bits mostly agrees with it.
"""

import os
import re
from pathlib import Path

import numpy as np

from services.launcher.models import gguf_head
from shared.folders import cache_folder
from shared.model import gguf_header

_LAYER = re.compile(r"blk\.(\d+)\.")


def shallow(model: Path, layers: int) -> Path:
    """The model at `model` with its first `layers` layers."""
    folder = cache_folder() / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{model.stem}-{layers}-layers.gguf"
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        _write(model, layers, part)
        os.replace(part, path)
    return path


def _write(model: Path, layers: int, path: Path) -> None:
    header = gguf_header.read(model)
    weights = np.memmap(model, np.uint8, "r")
    kept = [tensor for tensor in header.tensors if _layer(tensor.name) < layers]
    placed, size = gguf_head.laid_out(((one.name, one.shape, one.kind) for one in kept), header.alignment)
    changes = {f"{header.text('general.architecture')}.block_count": layers}
    head = gguf_head.make(weights[: header.end].tobytes(), header, changes, placed)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
        for tensor, place in zip(kept, placed, strict=True):
            file.seek(len(head) + place.offset)
            file.write(weights[tensor.start : tensor.start + place.size].tobytes())


def _layer(name: str) -> int:
    """The layer that a tensor belongs to, -1 for those of the whole model."""
    found = _LAYER.match(name)
    return int(found[1]) if found else -1
