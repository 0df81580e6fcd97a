"""How many Python objects of each type the services of a private fleet hold."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from services.launcher.fleet.stack import StackError

SERVICES: Final = ("gateway", "verifier", "drafter")
_COUNT_S: Final = 30.0  # a service that has not counted its objects by then hangs


class Counts:
    """The Python objects of services that run as `bench.endurance.counted`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.commands = {
            name: (sys.executable, "-m", "bench.endurance.counted", str(self._file(name)), f"services.{name}")
            for name in SERVICES
        }

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def read(self, pids: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Have each process count its objects by type. Raises `StackError` if one does not."""
        found = {}
        for name in SERVICES:
            self._file(name).unlink(missing_ok=True)
            os.kill(pids[name], signal.SIGUSR2)
            deadline = time.monotonic() + _COUNT_S
            while not self._file(name).exists():
                if time.monotonic() > deadline:
                    raise StackError(f"the {name} did not count its objects within {_COUNT_S:.0f} s")
                time.sleep(0.05)
            found[name] = msgspec.json.decode(self._file(name).read_bytes(), type=dict[str, int])
        return found
