"""`draftmesh backend add` and `remove`: a backend fetched, tried and put in place whole, or nothing."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from rich.filesize import decimal

from services.launcher.backends import archive, catalogue, fetching, signs
from services.launcher.backends.catalogue import Prebuilt
from services.launcher.display import Display
from services.launcher.models import fetching as bars
from shared.errors import StartError
from shared.model.download import DownloadError
from shared.model.llama import library, manifest, plugins, trial
from shared.model.model_source import SPARE_BYTES


def add(name: str, source: Path | None, display: Display) -> int:
    """Fetch the backend `name`, or take its files from the folder `source`; try it, and put it in place: 0.

    Raises `StartError` if it is not available, does not fit, or llama.cpp already has it; then the installed backends
    stay unchanged.
    """
    prebuilt = find(name)
    try:
        with _alone():
            outcome = _outcome_of_installed(prebuilt)
            if outcome is None:
                outcome = _install(prebuilt, source, display)
            else:
                display.say(f"already there: {name} {prebuilt.version}")
    except (DownloadError, archive.BrokenArchive) as error:
        raise _error(name, str(error)) from None
    except OSError as error:
        raise _error(name, _of_disk(error)) from None
    except KeyboardInterrupt:
        display.say("stopped; nothing was installed; the downloaded part is kept, and the same command continues")
        raise
    _tell(prebuilt, outcome, display)
    return 0


def remove(name: str, display: Display) -> int:
    """Delete the backend `name`: 0. Raises `StartError` if it is not there."""
    with _alone():
        if name not in plugins.installed():
            here = ", ".join(plugins.installed()) or "none"
            raise StartError("backend remove", name, f"no such backend was added; added are: {here}")
        _discard(plugins.folder() / name)
    display.say(f"removed {name}; processes that use it keep it until they end")
    return 0


def find(name: str) -> Prebuilt:
    """The backend `name` for this system. Raises `StartError` if there is none, or llama.cpp has it already."""
    system = catalogue.this_system()
    offered = catalogue.offered(system)
    if name not in offered:
        names = ", ".join(offered) or "none"
        raise _error(name, f"prebuilt for {system}: {names}; docs/backends.md says how to build others into llama.cpp")
    if name in library.backends():
        raise _error(name, "this llama.cpp was built with it, so there is nothing to add")
    return offered[name]


def _outcome_of_installed(prebuilt: Prebuilt) -> trial.TrialOutcome | None:
    """The trial of the pinned release, if it is installed and whole."""
    path = plugins.installed().get(prebuilt.name)
    known = manifest.read(path.parent) if path else None
    if path is None or known is None or known.version != prebuilt.version:
        return None
    outcome = trial.attempt(path)
    return outcome if not outcome.problem or outcome.no_driver else None


def _install(prebuilt: Prebuilt, source: Path | None, display: Display) -> trial.TrialOutcome:
    _check_space(prebuilt, source)
    files = _files(prebuilt, source, display)
    place = plugins.folder() / prebuilt.name
    # The backend's name is the last part of the path, as it will be: messages are made from it.
    with tempfile.TemporaryDirectory(prefix=".adding-", dir=plugins.folder()) as hidden:
        made = Path(hidden) / prebuilt.name
        made.mkdir()
        for package, file in zip(prebuilt.packages, files, strict=True):
            display.say(f"unpacking {file.name}")
            archive.unpack(file, package.members, made)
        manifest.describe(made, prebuilt.version)
        display.say(f"trying {prebuilt.name} in a process of its own")
        outcome = trial.attempt(made / plugins.library_name(prebuilt.name))
        if outcome.problem and not outcome.no_driver:
            reason = outcome.problem.replace(f"{made}/", "")
            raise _error(prebuilt.name, f"nothing was installed: the backend {reason}")
        if place.exists():
            place.rename(Path(hidden) / "former")
        made.rename(place)
    if source is None:
        for file in files:
            file.unlink(missing_ok=True)
    return outcome


def _files(prebuilt: Prebuilt, source: Path | None, display: Display) -> list[Path]:
    if source is not None:
        return [fetching.from_folder(package, source) for package in prebuilt.packages]
    files = []
    for number, package in enumerate(prebuilt.packages, 1):
        some = f", {decimal(kept)} are here" if (kept := fetching.kept(package)) else ""
        count = f" ({number} of {len(prebuilt.packages)})" if len(prebuilt.packages) > 1 else ""
        display.say(f"fetching {package.file}, {decimal(package.size)}{count}{some}")
        with bars.telling(display.console) as report:
            files.append(fetching.fetch(package, report))
    return files


def _check_space(prebuilt: Prebuilt, source: Path | None) -> None:
    """Raise `StartError` if the files or what is in them will not fit."""
    needed = {plugins.folder(): sum(package.unpacked for package in prebuilt.packages)}
    if source is None:
        missing = sum(package.size - fetching.kept(package) for package in prebuilt.packages)
        needed[fetching.downloads()] = missing
    for folder, size in needed.items():
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(existing).free
        if size + SPARE_BYTES > free:
            raise _error(
                prebuilt.name,
                f"{decimal(size)} is needed; {decimal(free)} is free at {folder}, of which {decimal(SPARE_BYTES)}"
                " must stay free; free some space",
            )


@contextmanager
def _alone() -> Iterator[None]:
    """Lets one process at a time change the folder of backends, and clears what a killed one left."""
    folder = plugins.folder()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        for left in folder.glob(".adding-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _discard(place: Path) -> None:
    """Take a backend away at once, then delete it."""
    with tempfile.TemporaryDirectory(prefix=".adding-", dir=place.parent) as hidden:
        place.rename(Path(hidden) / place.name)


def _tell(prebuilt: Prebuilt, outcome: trial.TrialOutcome, display: Display) -> None:
    display.say(f"{prebuilt.name} {prebuilt.version} is at {plugins.folder() / prebuilt.name}")
    if not outcome.devices:
        display.say(f"it needs {prebuilt.needs}")
    if outcome.problem:
        display.say(f"no device yet: it {outcome.problem}", "yellow")
    elif not outcome.devices:
        display.say(f"no device yet: {signs.why_none(prebuilt.name, signs.look())}", "yellow")
    for name, device in named(prebuilt.name, outcome).items():
        display.say(f"{name}: {device.description}; --target-device {name} or --draft-device {name} uses it", "green")


def named(backend: str, outcome: trial.TrialOutcome) -> dict[str, trial.Seen]:
    """The devices of a backend by our names for them."""
    return {f"{backend}:{index}": device for index, device in enumerate(outcome.devices)}


def _of_disk(error: OSError) -> str:
    where = f" at {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{where}; nothing was installed; free some space and try again (the download is kept)"
    return f"nothing was installed: {os.strerror(error.errno) if error.errno else error}{where}"


def _error(name: str, message: str) -> StartError:
    return StartError("backend add", name, message)
