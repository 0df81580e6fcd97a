"""A program in a session of its own, as one would type it: what it printed and when, waited for, interrupted, ended."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_END_S: Final = 60.0  # after Ctrl-C; what takes longer is killed


class TooSlowError(RuntimeError):
    """Something did not happen in time, or a program ended; the message holds the last lines that it printed."""


class TimedProgram:
    """A running program; its lines come with the seconds since it was typed."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], limit_s: float, folder: Path | None = None
    ) -> None:
        """`limit_s` is for each thing that is waited for."""
        self.began = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self._limit_s = limit_s
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.monotonic() - self.began, line.strip()))

    def said(self, beginning: str) -> bool:
        """Whether a line begins so."""
        return any(line.startswith(beginning) for _, line in self.lines)

    def line(self, beginning: str) -> str:
        """The first line that begins so, without that, as soon as it is there. Raises `TooSlowError`."""
        self.wait(lambda: self.said(beginning))
        return next(line for _, line in self.lines if line.startswith(beginning)).removeprefix(beginning)

    def wait(self, condition: Callable[[], bool]) -> float:
        """The time since it was typed at which the condition held. Raises `TooSlowError`."""
        deadline = time.monotonic() + self._limit_s
        while not condition():
            ended = self._process.poll() is not None
            if ended:
                self._reader.join()
            if not condition() and (ended or time.monotonic() > deadline):
                raise self._too_slow()
            time.sleep(0.01)
        return time.monotonic() - self.began

    def wait_for_end(self, limit_s: float) -> None:
        """Return when it has ended by itself. Raises `TooSlowError`."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise self._too_slow() from None
        self._reader.join()

    def interrupt(self) -> float:
        """Ctrl-C; the seconds until it has ended, as it should by itself. Raises `TooSlowError`."""
        began = time.monotonic()
        os.killpg(self._process.pid, signal.SIGINT)
        self.wait_for_end(_END_S)
        return time.monotonic() - began

    def end(self) -> None:
        """Leave nothing of it, whatever happened."""
        if self._process.poll() is None:
            with suppress(TooSlowError):
                self.interrupt()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _too_slow(self) -> TooSlowError:
        return TooSlowError("\n".join(line for _, line in self.lines[-20:]))
