"""What this machine and build can do, found out by a process of its own.

Listing devices loads llama.cpp and, on a GPU, takes memory on it for as long as the process lives. The launcher lives
as long as the fleet, so it asks a child, which a broken driver may crash without taking the launcher along.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Final

from shared.errors import StartError

_TIMEOUT_S: Final = 60  # a driver that wakes sleeping cards may take half a minute; one that hangs must not hang us


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as `shared.devices` chooses among them; memory in bytes."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices in ggml's order."""

    devices: tuple[SeenDevice, ...]


def look() -> Hardware:
    """Ask a child process. Raises `StartError` if llama.cpp cannot be loaded at all."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "services.launcher.hardware"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise StartError("devices", "llama.cpp", f"listing them took over {_TIMEOUT_S} s; is a driver stuck?") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit {error.returncode}"])[-1]
        raise StartError("devices", "llama.cpp", f"cannot be loaded ({last})") from None
    return Hardware(tuple(SeenDevice(**device) for device in json.loads(done.stdout)))


def _report() -> None:
    from shared.llama.backend_device import backend_devices

    devices = [
        asdict(SeenDevice(seen.name, seen.description, seen.kind, seen.memory_free, seen.memory_total))
        for seen in backend_devices()
    ]
    sys.stdout.write(json.dumps(devices))


if __name__ == "__main__":
    _report()
