"""Lists the devices of this machine and build in a process of its own.

A process that asks a GPU for its memory takes some hundreds of megabytes there until it ends. So a child asks, others
choose from its answer, and each process opens only the devices that it uses. A driver that crashes ends only the child.
Starting the child takes half a second to a second, like starting Python with llama.cpp.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.errors import StartError
from shared.machine.devices import Device

_TIMEOUT_S: Final = 60  # waking sleeping cards may take half a minute; a driver that hangs must not hang us


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices in ggml's order, and the reason for each added backend that cannot be used."""

    devices: tuple[Device, ...]
    broken: Mapping[str, str] = field(default_factory=dict)


def look() -> Hardware:
    """List the devices in a child process. Raises `StartError` if llama.cpp cannot be loaded."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "shared.model.llama.backend_device"],
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
