"""Prebuilt backends of ggml that are kept in the user's data folder and loaded at run time.

`draftmesh backend add NAME` puts one into `backends/NAME/`, with the libraries that it needs beside it. A backend that
llama.cpp itself was built with is no plugin.
"""

import ctypes
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from shared.folders import data_folder
from shared.llama import library
from shared.rows import LlamaError

_BASE: Final = "libggml-base.so"  # by this name a prebuilt backend asks for ggml


def folder() -> Path:
    """Where backends are kept, a folder for each."""
    return data_folder() / "backends"


def installed() -> dict[str, Path]:
    """The library of each backend by its name, such as `vulkan`."""
    found = sorted(folder().glob("*/libggml-*.so"))
    return {path.parent.name: path for path in found if path.name == f"libggml-{path.parent.name}.so"}


@cache
def load(name: str) -> None:
    """Add the devices of the backend `name` to this process; later calls do nothing. Raises `LlamaError`.

    The backend looks for ggml beside itself. It is loaded out of a folder of links, where it finds the very copy that
    libllama uses: the loader then maps no second one.
    """
    library.start()
    path = installed().get(name)
    if path is None:
        raise LlamaError(f"there is no backend {name} in {folder()}")
    with tempfile.TemporaryDirectory(prefix="draftmesh-") as links:
        for neighbour in path.parent.iterdir():
            (Path(links) / neighbour.name).symlink_to(neighbour)
        (Path(links) / _BASE).symlink_to(library.path_of("ggml_backend_dev_name"))
        link = Path(links) / path.name
        if not library.ggml("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(str(link).encode()):
            raise LlamaError(f"the backend {name} cannot be loaded from {path.parent}")
