"""The shared libraries: found once, started once, and never loaded twice.

llama-cpp-python loads libllama, from `LLAMA_CPP_LIB_PATH` if that is set, and libllama loads the ggml libraries beside
it. Symbols of ggml are looked up through libllama, so they are those of the copies that libllama itself uses: pip
installs a library and its versioned names as separate files, and each of them would bring a registry of its own.
"""

import ctypes
import os
import re
import sys
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as C
import structlog

from shared.model.llama import start_check

logger = structlog.get_logger()

_SEVERITIES: Final = {2: "info", 3: "warning", 4: "error"}  # GGML_LOG_LEVEL_… in ggml.h
_FUNCTION: Final = re.compile(r"^\w+: ")  # the function of llama.cpp that writes
_errors: Final = deque[str](maxlen=16)  # its messages since `forget_errors`


@C.llama_log_callback  # type: ignore[untyped-decorator]
def _log(level: int, text: bytes, _: Any) -> None:
    severity = _SEVERITIES.get(level)
    line = text.decode(errors="replace").strip()
    # A command without a log of its own prints no log of llama.cpp.
    if severity and structlog.is_configured():
        logger.debug("llama_cpp_message", severity=severity, line=line)
    if severity == "error":
        _errors.append(line)


def forget_errors() -> None:
    """Drop earlier messages, so that `reason` has only those of the next call."""
    _errors.clear()


def reason() -> str:
    """Why a call failed, in llama.cpp's own words; empty if it gave no reason. llama.cpp writes the cause first,
    then its effects."""
    return next((_FUNCTION.sub("", line) for line in _errors if line), "")


def folder() -> Path:
    return Path(C._lib._name).parent


@cache
def start() -> None:
    """Make llama.cpp ready; later calls do nothing. Raises `StartError` if it would crash this process."""
    if not begin.cache_info().currsize:
        start_check.hold(folder())
        begin()


@cache
def begin() -> None:
    """Make llama.cpp ready without checking that it can start here; only for a process that may crash.

    A build whose CPU code comes in variants has no device at first; ggml then loads the variant for this processor.
    """
    C.llama_log_set(_log, ctypes.c_void_p(0))
    if not ggml("ggml_backend_dev_count", ctypes.c_size_t)():
        ggml("ggml_backend_load_all_from_path", None, ctypes.c_char_p)(str(folder()).encode())
    C.llama_backend_init()


@cache
def ggml(name: str, result: Any, *arguments: Any) -> Any:
    """The function `name` of ggml with its ctypes types. Raises `AttributeError` if this build lacks it."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, _library_of(name)))


def backends() -> list[str]:
    """The backends of this process, by ggml's names in lower case, such as `cpu` and `cuda`."""
    start()
    get = ggml("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = ggml("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    count = ggml("ggml_backend_reg_count", ctypes.c_size_t)()
    return [name(get(index)).decode().lower() for index in range(count)]


class _Found(ctypes.Structure):
    """`Dl_info` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def path_of(name: str) -> Path:
    """The file from which this process has ggml's function `name`. Not on Windows."""
    found = _Found()
    address = ctypes.cast(getattr(C._lib, name), ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(address, ctypes.byref(found))
    return Path(os.fsdecode(found.file)).absolute()


def _library_of(name: str) -> ctypes.CDLL:
    """libllama, through which the loader finds its dependencies; Windows looks only into one file."""
    if sys.platform != "win32":
        return C._lib  # type: ignore[no-any-return]
    names = ("ggml.dll", "ggml-base.dll")
    libraries = [ctypes.CDLL(str(folder() / file)) for file in names]
    return next(library for library in libraries if hasattr(library, name))


def build_info() -> str:
    """The build options of this llama.cpp, for cache keys: instruction sets and backends."""
    start()
    return str(C.llama_print_system_info().decode())
