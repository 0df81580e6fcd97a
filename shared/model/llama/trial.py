"""Tries whether a backend works here, in processes of their own, because one that does not fit may end its process.

Run as a program, this tries one backend and prints the outcome.
"""

import ctypes
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from shared.model.llama import figures, library, loading, manifest
from shared.model.rows import LlamaError

_TIMEOUT_S: Final = 120.0  # a CUDA driver may take half a minute to wake cards; one that hangs must not hang us


class Seen(msgspec.Struct, frozen=True):
    """A device of the backend: ggml's name for it, and what it is."""

    name: str
    description: str


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome: no problem and the devices, or why the backend cannot be used."""

    problem: str = ""  # continues "the backend …"
    no_driver: bool = False  # the system lacks something, and the backend seems to fit
    made_for: str = ""  # the release of ggml
    devices: tuple[Seen, ...] = ()


def attempt(path: Path) -> TrialOutcome:
    try:
        told = _ask("shared.model.llama.trial", path)
    except LlamaError as error:
        return TrialOutcome(problem=f"cannot be used: loading it {error}")
    return msgspec.json.decode(told, type=TrialOutcome)


def _try(path: Path) -> TrialOutcome:
    if bad := manifest.damaged(path.parent):
        return TrialOutcome(problem=f"is damaged: its {bad} is not what was fetched")
    made_for = ""
    try:
        if (theirs := path.parent / loading.BASE).exists():
            foreign, own = _figures(theirs), _figures(library.path_of("ggml_backend_dev_name"))
            made_for = foreign.version
            if differing := figures.difference(foreign, own):
                return TrialOutcome(
                    made_for=made_for,
                    problem=f"was made for ggml {foreign.version}, not for the {own.version} of this"
                    f" llama.cpp: it has {differing}",
                )
        return TrialOutcome(made_for=made_for, devices=_devices(loading.load(path)))
    except LlamaError as error:
        return TrialOutcome(made_for=made_for, problem=str(error), no_driver=isinstance(error, loading.NoDriver))


def _figures(path: Path) -> figures.Figures:
    """The figures of the libggml-base at `path`, read in a child. Raises `LlamaError`."""
    try:
        return msgspec.json.decode(_ask("shared.model.llama.figures", path), type=figures.Figures)
    except LlamaError as error:
        raise LlamaError(f"has no ggml that can be compared: loading {path.name} {error}") from None


def _ask(module: str, path: Path) -> bytes:
    """The output of `module` for `path`. Raises `LlamaError`, which says how the child ended."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LlamaError(f"takes over {_TIMEOUT_S:.0f} s; is a driver stuck?") from None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise LlamaError(f"ends the process with {name}, so it is broken or made for another llama.cpp or processor")
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["without a word"])[-1]
        raise LlamaError(f"fails ({last})")
    return done.stdout


def _devices(backend: int) -> tuple[Seen, ...]:
    count = library.ggml("ggml_backend_reg_dev_count", ctypes.c_size_t, ctypes.c_void_p)(backend)
    get = library.ggml("ggml_backend_reg_dev_get", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    name = library.ggml("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    description = library.ggml("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    handles = [get(backend, index) for index in range(count)]
    return tuple(Seen(name(handle).decode(), description(handle).decode()) for handle in handles)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_try(Path(sys.argv[1]))))
