"""What a kit holds: a digest for every file, so that a changed or missing one is noticed before anything is run.

Needs Python's standard library only: a kit is read where nothing is installed yet.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench.device.schedule import PartFailed

NAME: Final = "kit.json"
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What `kit.json` says. `files` are SHA-256 digests by path within the kit's folder."""

    python: str  # the version that the wheels are for, such as "3.12"
    machine: str  # the processor, as `platform.machine()` has it
    left_out: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    def under(self, folder: str) -> list[str]:
        """The files in one of its folders."""
        return sorted(path for path in self.files if path.startswith(f"{folder}/"))


def write(folder: Path, *, python: str, machine: str, left_out: Sequence[str]) -> Kit:
    """Describe everything in `folder` and write `kit.json` beside it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in paths}
    kit = Kit(python=python, machine=machine, left_out=tuple(left_out), files=files)
    (folder / NAME).write_text(json.dumps({"schema": SCHEMA, **asdict(kit)}, indent=1) + "\n")
    return kit


def read(folder: Path) -> Kit:
    """The kit in `folder`, every file of it seen to be the one that was put there. Raises `PartFailed`."""
    kit = _described(folder)
    for name, digest in kit.files.items():
        path = folder / name
        if not path.is_file():
            raise PartFailed(f"{path} is missing; make the kit anew with `make device-kit`")
        if _digest(path) != digest:
            raise PartFailed(f"{path} is not the file that was put there; make the kit anew with `make device-kit`")
    return kit


def _described(folder: Path) -> Kit:
    path = folder / NAME
    try:
        found = json.loads(path.read_text())
        if found.pop("schema") != SCHEMA:
            raise PartFailed(f"{path} is of another release of draftmesh; make the kit anew with `make device-kit`")
        return Kit(**{**found, "left_out": tuple(found["left_out"])})
    except FileNotFoundError:
        raise PartFailed(f"there is no kit at {folder}; `make device-kit` makes one") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PartFailed(f"{path} cannot be read ({error}); make the kit anew with `make device-kit`") from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
