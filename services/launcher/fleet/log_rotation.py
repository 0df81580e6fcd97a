"""Bounds the size of a log to which another process appends, without that process's help."""

import os
import shutil
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

LIMIT_BYTES: Final = 10 << 20
KEPT: Final = 2  # older files beside the current one


def older(path: Path) -> list[Path]:
    """The paths of older parts of the log at `path`, the newest first; they may not exist."""
    return [path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1)]


def rotate(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Move the contents of a log larger than `limit_bytes` to the first of `older`, and those further on; whether it
    did.

    The writer keeps its open file, which must be in append mode, so the contents are copied and the file is emptied. A
    line that is written between copying and emptying is lost. If there is no room for a copy, the contents are dropped.
    """
    if path.stat().st_size <= limit_bytes:
        return False
    places = older(path)
    for source, target in reversed(list(pairwise(places))):
        with suppress(FileNotFoundError):
            os.replace(source, target)
    with path.open("r+b") as log:
        # A new file each time, by which readers notice the rotation.
        copy = path.with_name(f"{path.name}.new")
        try:
            with copy.open("wb") as file:
                shutil.copyfileobj(log, file)
                os.replace(copy, places[0])
                shutil.copyfileobj(log, file)  # what came meanwhile
        except OSError:
            with suppress(OSError):
                copy.unlink()
        log.truncate(0)
    return True
