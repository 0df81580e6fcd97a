"""Which devices this machine and build have, found out by a process of its own.

Asking a GPU for its memory takes some hundreds of megabytes there for as long as the asking process lives. So a child
asks, whoever chooses does it on the child's answer, and a process opens only what it uses. A driver that crashes takes
only the child along. Starting it costs about as much as starting Python with llama.cpp: half a second to a second.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.errors import StartError
from shared.machine.devices import Device

_TIMEOUT_S: Final = 60  # a driver that wakes sleeping cards may take half a minute; one that hangs must not hang us


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices in ggml's order, and of each backend that was added and cannot be used, why."""

    devices: tuple[Device, ...]
    broken: Mapping[str, str] = field(default_factory=dict)


def look() -> Hardware:
    """Ask a child process. Raises `StartError` if llama.cpp cannot be loaded at all."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "shared.model.llama.hardware_child"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise StartError("devices", "llama.cpp", f"listing them took over {_TIMEOUT_S} s; is a driver stuck?") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        last = (lines or [f"exit {error.returncode}"])[-1]
        raise StartError("devices", "llama.cpp", f"cannot be loaded ({last})") from None
    return msgspec.json.decode(done.stdout, type=Hardware)
