"""Tries llama.cpp in a child process, and describes the outcome. A crash ends only the child."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shared.machine import signals

FAILED: Final = 3  # the child's exit status if a decode fails or gives wrong numbers
_TIMEOUT_S: Final = 300.0  # a graphics driver may compile its shaders first


class State(Enum):
    """How a self-test went. `UNKNOWN`: it could not run, which says nothing about llama.cpp."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SelfTestOutcome:
    """How a self-test went; `what` says for people what happened, empty if it passed."""

    state: State
    what: str = ""


Start = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]


def _start(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)


def run(
    kinds: Sequence[int] = (), device: str = "", extra_buffers: bool = True, start: Start = _start
) -> SelfTestOutcome:
    """Start llama.cpp in a child and decode with weights of ggml's types `kinds`; without any, only start it.

    `device` is ggml's name of a device, empty for the CPU. Takes a second or two on a CPU.
    """
    command = [sys.executable, "-P", "-m", "shared.model.llama.self_test_child", device, "1" if extra_buffers else "0"]
    try:
        done = start([*command, *map(str, kinds)])
    except subprocess.TimeoutExpired:
        return SelfTestOutcome(State.UNKNOWN, f"no end after {_TIMEOUT_S:.0f} s")
    except OSError as error:
        return SelfTestOutcome(State.UNKNOWN, str(error))
    return judge(done.returncode, done.stdout, done.stderr)


def judge(status: int, said: str, errors: str) -> SelfTestOutcome:
    """The outcome, from a child's exit status, its steps and its errors. Pure."""
    step = _last_line(said) or "its start"
    if status == 0:
        return SelfTestOutcome(State.PASSED)
    if status == FAILED:
        return SelfTestOutcome(State.FAILED, step)
    if status < 0 and signals.is_crash(-status):
        return SelfTestOutcome(State.FAILED, f"{signals.in_words(-status)} at {step}")
    if status < 0:
        return SelfTestOutcome(State.UNKNOWN, f"{signals.in_words(-status)} at {step}")
    return SelfTestOutcome(State.UNKNOWN, _last_line(errors) or f"exit status {status} at {step}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
