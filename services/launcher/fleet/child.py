"""One child process: its output in a file, stopped when asked, and gone when the launcher is gone.

The child runs in a session of its own, so that Ctrl-C reaches it only through the launcher. On Linux the kernel kills
it when the launcher dies for any reason.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from services.launcher.fleet import death
from services.launcher.fleet.death import Surroundings
from shared.machine import cgroups, resources
from shared.process import lifecycle

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_TAIL_BYTES: Final = 8192  # so much of a log's end is read for its last lines
_WHY_LINES: Final = 40  # so many of them are searched for why a process ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command to keep running. `stage` orders the stop: lower stages end first. `name` is unique."""

    name: str
    command: tuple[str, ...]
    stage: int
    environment: Mapping[str, str]  # the whole environment: the child inherits nothing
    grace_s: float = lifecycle.GRACE_S  # how long it may take to end when it is asked


def service_command(service: str) -> tuple[str, ...]:
    """The command that starts a service, never with packages from the working directory, which could shadow ours
    (-P)."""
    return (sys.executable, "-P", "-m", f"services.{service}")


class Child:
    """A running `program`; `start` may be called again after it ended."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._memory_kills = 0  # of this control group, when it started

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Run the program; its output is appended to the log, or dropped if that cannot be opened."""
        self._memory_kills = cgroups.memory_kills()
        with self._output() as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.program.environment),
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),
            )

    async def wait(self) -> int:
        """The exit status, negative for a signal, once the process has ended."""
        assert self._process is not None
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        if self.alive and self._process:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """End it now, with all processes of its session."""
        if self.alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def last_lines(self, count: int) -> list[str]:
        """The end of the log, without empty lines."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if line.strip()][-count:]

    def error_line(self) -> str:
        """What its log says about why it ended."""
        return death.said(self.last_lines(_WHY_LINES))

    def cause_of_death(self) -> str:
        """Why it ended, in words. It must have ended."""
        assert self._process is not None
        status = self._process.returncode
        assert status is not None
        around = Surroundings(
            disk_full=resources.disk_full(self.log.parent),
            memory_killed=cgroups.memory_kills() > self._memory_kills,
        )
        return death.explain(status, self.last_lines(_WHY_LINES), around)

    def _output(self) -> IO[bytes]:
        try:
            return self.log.open("ab")
        except OSError:  # a full disk, or somebody tidied the folder away
            return open(os.devnull, "ab")


def _dies_with(parent: int) -> Callable[[], None] | None:
    """What the child runs before its program starts; None if the system does not support it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here, because between fork and exec nothing may take a lock

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return arrange
