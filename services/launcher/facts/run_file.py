"""A file in which each running `up` says where its fleet is, so that other commands find it.

One file per `up`, readable only by its user, because Redis's address may hold a password. `up` holds a lock on its
file: the system releases it when the process ends, so a file without a lock belongs to an `up` that is gone. An `up`
that ends well removes its file; a file that remains says where the logs of a failed one are.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from shared.errors import StartError
from shared.folders import state_folder

if sys.platform != "win32":
    import fcntl

_SUFFIX = ".run"


class FleetRun(msgspec.Struct, frozen=True, kw_only=True):
    """One `up`: its process, the gateway's URL, Redis's URL with its password, the folder of its logs, its start in
    unix seconds."""

    pid: int
    gateway: str
    redis: str
    logs: str
    started: float

    @property
    def port(self) -> int:
        """The gateway's port, which tells the fleets of one machine apart."""
        return urlsplit(self.gateway).port or 0


class RunFile:
    """The file of this process's `up`; `kept`: it stays at the end, so that users find the logs."""

    kept = False


@contextmanager
def recorded(run: FleetRun) -> Iterator[RunFile]:
    """Keep the file of `run` while the block lasts. Deletes the files of earlier failed runs, except the latest.

    Raises `OSError` if it cannot be written.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _, path in _dead(folder)[1:]:
        path.unlink(missing_ok=True)
    # Written and locked before it gets its name, so that no reader sees half of it or takes its `up` for dead.
    descriptor, name = tempfile.mkstemp(dir=folder)  # with mode 0600
    path = folder / f"{run.pid}{_SUFFIX}"
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "wb", closefd=False) as content:
            content.write(msgspec.json.encode(run))
        os.replace(name, path)
    except OSError:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
        raise
    file = RunFile()
    try:
        yield file
    finally:
        if not file.kept:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def living() -> list[FleetRun]:
    """Every running `up` of this user on this machine, by start."""
    return sorted((run for run, path in _read(_folder()) if _is_locked(path)), key=lambda run: run.started)


def last_dead() -> FleetRun | None:
    """The latest failed `up` whose logs still exist."""
    return next((run for run, _ in _dead(_folder()) if Path(run.logs).is_dir()), None)


def chosen(port: int | None) -> FleetRun | None:
    """The `up` whose gateway listens at `port`, or the only one; None without a `port` if none runs.

    Raises `StartError` if there is none at `port`, or if several run and `port` is not given.
    """
    runs = living()
    if port is not None:
        found = next((run for run in runs if run.port == port), None)
        if found is None:
            there = ", ".join(str(run.port) for run in runs) or "none"
            raise StartError("--up", port, f"no `up` of this user has its gateway there; running: {there}")
        return found
    if len(runs) > 1:
        each = ", ".join(f"--up {run.port} (pid {run.pid})" for run in runs)
        raise StartError("--up", "(not given)", f"{len(runs)} fleets run here, so say which: {each}")
    return runs[0] if runs else None


def _folder() -> Path:
    return state_folder() / "up"


def _dead(folder: Path) -> list[tuple[FleetRun, Path]]:
    """The failed ones, the latest first."""
    dead = [(run, path) for run, path in _read(folder) if not _is_locked(path)]
    return sorted(dead, key=lambda one: one[0].started, reverse=True)


def _read(folder: Path) -> list[tuple[FleetRun, Path]]:
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError, msgspec.DecodeError):  # it was just deleted, or is of another release
            found.append((msgspec.json.decode(path.read_bytes(), type=FleetRun), path))
    return found


def _is_locked(path: Path) -> bool:
    if sys.platform == "win32":
        return False  # `up` does not run there
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
