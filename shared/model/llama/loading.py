"""One dynamic backend of ggml loaded into this process, so that it uses the ggml which libllama uses."""

import ctypes
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.model.llama import library
from shared.model.rows import LlamaError

BASE: Final = "libggml-base.so"  # the name under which a prebuilt backend needs ggml

_MISSING: Final = re.compile(r"(lib[^/:]+): cannot open shared object file")
_UNDEFINED: Final = re.compile(r"undefined symbol: (\w+)")
_OLD_SYSTEM: Final = re.compile(r"version `(\w+_[\d.]+)' not found")
_DRIVERS: Final = {  # libraries that the system provides, by backend, and their packages
    "cuda": ("libcuda.so.1", "NVIDIA's driver"),
    "vulkan": ("libvulkan.so.1", "the Vulkan loader (Debian and Ubuntu: libvulkan1) and your card's Vulkan driver"),
}


class NoDriver(LlamaError):
    """A library of the system that the backend needs is missing; the backend itself may work."""


def load(path: Path) -> int:
    """Add the devices of the backend at `path` to this process; ggml's handle of it.

    Raises `LlamaError`, which says what is wrong, such as "needs libcuda.so.1, which is not here". A backend that does
    not fit may end the process: `shared.model.llama.trial` tries it in another one.
    """
    check_driver(path.parent.name)
    with _links(path) as link:
        try:
            plugin = ctypes.CDLL(str(link))
        except OSError as error:
            raise _refusal(str(error).replace(str(link.parent), str(path.parent))) from None
        if not hasattr(plugin, "ggml_backend_init"):
            raise LlamaError("is no backend of ggml: it has no ggml_backend_init")
        made = ctypes.CFUNCTYPE(ctypes.c_void_p)(("ggml_backend_init", plugin))()
        if not made:
            raise NoDriver("finds no driver that it can use")
        if interface(made) != (here := own_interface()):
            raise LlamaError(
                f"was made for version {interface(made)} of ggml's backend interface, and this"
                f" llama.cpp has version {here}"
            )
        loaded = library.ggml("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(str(link).encode())
        if not loaded:
            raise LlamaError("is refused by ggml; DRAFTMESH_LOG_LEVEL=debug shows its reason")
        return int(loaded)


def check_driver(name: str) -> None:
    """Raise `NoDriver` if the system's library that the backend `name` needs cannot be loaded."""
    if name in _DRIVERS:
        file, source = _DRIVERS[name]
        try:
            ctypes.CDLL(file)
        except OSError as error:
            raise NoDriver(f"needs {file}, which cannot be loaded ({error}): install {source}") from None


def interface(backend: int) -> int:
    """The version of the interface that a backend speaks: the first field of `ggml_backend_reg`."""
    return ctypes.c_int.from_address(backend).value


def own_interface() -> int:
    """The version that this llama.cpp speaks, as its CPU backend gives it."""
    library.start()
    return interface(library.ggml("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)(0))


@contextmanager
def _links(path: Path) -> Iterator[Path]:
    """A folder of links, while the backend is loaded, to the files beside it and to our own ggml.

    The backend looks for its libraries beside itself. The loader finds the link to our ggml there, sees that it has
    that file already, and maps no second copy. This works wherever llama.cpp is, and if several installations share the
    backend.
    """
    with tempfile.TemporaryDirectory(prefix="draftmesh-") as folder:
        links = Path(folder)
        for neighbour in path.absolute().parent.iterdir():
            (links / neighbour.name).symlink_to(neighbour)
        (links / BASE).unlink(missing_ok=True)
        (links / BASE).symlink_to(library.path_of("ggml_backend_dev_name"))
        yield links / path.name


def _refusal(error: str) -> LlamaError:
    if found := _MISSING.search(error):
        return LlamaError(f"needs {found[1]}, which is not here")
    if found := _UNDEFINED.search(error):
        return LlamaError(f"needs {found[1]}, which this llama.cpp lacks: it was built for another llama.cpp")
    if found := _OLD_SYSTEM.search(error):
        return LlamaError(f"needs {found[1]}, and this system is older; build llama.cpp with it here")
    return LlamaError(f"cannot be loaded ({error})")
