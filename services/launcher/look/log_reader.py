"""Reads the logs of an `up`'s processes: existing and new lines, across rotations, restarts and new processes."""

import heapq
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.launcher.fleet.log_rotation import older
from services.launcher.look.log_line import LogLine, read
from shared.settings.options import Level

SUFFIX: Final = ".log"
_BLOCK: Final = 1 << 16
_LONGEST: Final = 1 << 16  # longest line in bytes; a longer one is split


def names(folder: Path) -> list[str]:
    """The processes that have a log in `folder`."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


class LogReader:
    """All logs in a folder of processes whose names begin with `wanted`, also those that appear later."""

    def __init__(self, folder: Path, wanted: str, level: Level, began: float) -> None:
        """Skips lines below `level`; `began` is the time of lines before the first that has a time."""
        self._folder = folder
        self._wanted = wanted
        self._level = level
        self._began = began
        self._logs: dict[str, _Log] = {}

    def read(self, count: int | None = None) -> list[LogLine]:
        """Lines completed since the last call, in order of time; at most the last `count`."""
        for name in names(self._folder):
            if name not in self._logs and name.startswith(self._wanted):
                self._logs[name] = _Log(self._folder / f"{name}{SUFFIX}", self._began)
        # The last `count` lines of each log include the last `count` of all. Ties stay in the order of writing.
        each = (deque(self._bad_enough(log), maxlen=count) for log in self._logs.values())
        lines = list(heapq.merge(*(sorted(lines, key=_moment) for lines in each), key=_moment))
        if lines:
            self._began = max(self._began, lines[-1].moment)  # a process that appears later began no earlier
        return lines if count is None else lines[max(0, len(lines) - count) :]

    def _bad_enough(self, log: "_Log") -> Iterator[LogLine]:
        return (line for line in log.lines() if line.is_at_least(self._level))


def _moment(line: LogLine) -> float:
    return line.moment


class _Log:
    """One log, read to where it ended at the last call."""

    def __init__(self, path: Path, began: float) -> None:
        self._process = path.name.removesuffix(SUFFIX)
        self._path = path
        self._earlier = [place for place in reversed(older(path)) if place.exists()]  # read once, oldest first
        self._rotated = self._rotations()
        self._position = 0
        self._begun = b""
        self._moment = began

    def lines(self) -> Iterator[LogLine]:
        """Lines completed since the last call; iterate to the end."""
        for block in self._blocks():
            *whole, self._begun = (self._begun + block).split(b"\n")
            if len(self._begun) > _LONGEST:
                whole.append(self._begun)
                self._begun = b""
            for raw in whole:
                if raw.strip():
                    line = read(self._process, raw.decode(errors="replace").rstrip("\r"), self._moment)
                    self._moment = line.moment
                    yield line

    def _blocks(self) -> Iterator[bytes]:
        while self._earlier:
            yield from _from(self._earlier.pop(0), 0)
        rotated = self._rotations()
        if rotated != self._rotated:
            self._rotated = rotated
            yield from _from(older(self._path)[0], self._position)
            self._position = 0
        elif self._size() < self._position:
            self._position = 0  # emptied without a copy
        for block in _from(self._path, self._position):
            self._position += len(block)
            yield block

    def _rotations(self) -> int:
        """A number that each rotation changes."""
        try:
            return older(self._path)[0].stat().st_ino
        except FileNotFoundError:
            return 0

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def _from(path: Path, position: int) -> Iterator[bytes]:
    """The file's contents from `position` on; nothing if there is no file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(position)
        while block := file.read(_BLOCK):
            yield block
