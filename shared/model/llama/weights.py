"""The types of a model's weights, read from the headers of its files."""

import ctypes
from pathlib import Path
from typing import Final

from shared.model import quants
from shared.model.llama import library

_FLOATS: Final = frozenset({0, 1, 30})  # F32, F16, BF16 in ggml.h


class _Parameters(ctypes.Structure):
    """`gguf_init_params`: no memory for tensors, no context for them."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def kinds(model: Path) -> list[int]:
    """ggml's numbers of the types in all files of `model`, ascending; empty if it is no GGUF file."""
    found: set[int] = set()
    shards = [path for path in model.parent.glob("*.gguf") if quants.stem(path.name) == quants.stem(model.name)]
    for path in shards or [model]:
        found |= _in_file(path)
    return sorted(kind for kind in found if kind in _FLOATS or _is_quantised(kind))


def name(kind: int) -> str:
    """ggml's name for the type: `q4_K`."""
    return str(library.ggml("ggml_type_name", ctypes.c_char_p, ctypes.c_int)(kind).decode())


def _in_file(path: Path) -> set[int]:
    # Hides ggml's message about a bad file, because `Model` reports it too.
    header = library.ggml("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, _Parameters)(
        str(path).encode(), _Parameters(True, None)
    )
    if not header:
        return set()
    count = library.ggml("gguf_get_n_tensors", ctypes.c_int64, ctypes.c_void_p)(header)
    kind = library.ggml("gguf_get_tensor_type", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
    found = {int(kind(header, index)) for index in range(count)}
    library.ggml("gguf_free", None, ctypes.c_void_p)(header)
    return found


def _is_quantised(kind: int) -> bool:
    return bool(library.ggml("ggml_is_quantized", ctypes.c_bool, ctypes.c_int)(kind))
