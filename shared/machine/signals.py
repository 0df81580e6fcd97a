"""Explains to people that a signal ended a process. Pure."""

import signal
from contextlib import suppress
from typing import Final

_NAMES: Final = {
    "SIGILL": "illegal instruction",
    "SIGSEGV": "segmentation fault",
    "SIGABRT": "aborted itself",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic error",
    "SIGKILL": "killed",
    "SIGTERM": "asked to end",
    "SIGINT": "interrupted",
}
_CAUSES: Final = {
    "SIGILL": "llama.cpp was built for another processor or compiled wrongly; `make llama` rebuilds it",
    "SIGSEGV": "a crash in native code, most likely llama.cpp's",
    "SIGABRT": "a failed check in native code, most likely llama.cpp's",
    "SIGBUS": "most likely a model file that was cut short, or a full disk",
    "SIGFPE": "a crash in native code, most likely llama.cpp's",
    "SIGKILL": "most likely by the kernel, because memory ran out",
}
_CRASHES: Final = frozenset({"SIGILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE"})


def in_words(number: int) -> str:
    """The name of the signal: `illegal instruction` for 4."""
    name = _name(number)
    return _NAMES.get(name, name or f"signal {number}")


def cause(number: int) -> str:
    """The likely cause of the signal; empty if unknown."""
    return _CAUSES.get(_name(number), "")


def is_crash(number: int) -> bool:
    """Whether the process caused the signal itself, so that the next one would do the same."""
    return _name(number) in _CRASHES


def is_kill(number: int) -> bool:
    """Whether it is the signal that no process survives, which the kernel sends when memory runs out."""
    return _name(number) == "SIGKILL"


def is_known(number: int) -> bool:
    """Whether the system has a signal of that number."""
    return bool(_name(number))


def _name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return ""
