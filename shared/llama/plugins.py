"""Prebuilt backends of ggml that are kept in the user's data folder and loaded at run time.

`draftmesh backend add NAME` puts one into `backends/NAME/`, with the libraries that it needs beside it. A backend that
llama.cpp itself was built with is no plugin.
"""

import ctypes
from functools import cache
from pathlib import Path

from shared.folders import data_folder
from shared.llama import library
from shared.rows import LlamaError


def folder() -> Path:
    """Where backends are kept, a folder for each."""
    return data_folder() / "backends"


def installed() -> dict[str, Path]:
    """The library of each backend by its name, such as `vulkan`."""
    found = sorted(folder().glob("*/libggml-*.so"))
    return {path.parent.name: path for path in found if path.name == f"libggml-{path.parent.name}.so"}


@cache
def load(name: str) -> None:
    """Add the devices of the backend `name` to this process; later calls do nothing. Raises `LlamaError`."""
    library.start()
    path = installed().get(name)
    if path is None or not library.ggml("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(str(path).encode()):
        raise LlamaError(f"the backend {name} cannot be loaded from {folder() / name}")
