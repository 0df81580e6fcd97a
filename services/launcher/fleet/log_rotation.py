"""Keeps a log that another process appends to within bounds, without that process's help."""

import os
import shutil
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

LIMIT_BYTES: Final = 10 << 20
KEPT: Final = 2  # older files beside the current one


def older(path: Path) -> list[Path]:
    """Where earlier parts of the log at `path` lie, the newest first; they need not exist."""
    return [path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1)]


def rotate(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Move what is in a log beyond `limit_bytes` to the first of `older`, and the older ones on; whether it was done.

    The writer keeps its open file, which must be in append mode, so the contents are copied and the file is emptied.
    A line that is written in the microseconds between is lost. Without room for a copy the contents are given up.
    """
    if path.stat().st_size <= limit_bytes:
        return False
    places = older(path)
    for source, target in reversed(list(pairwise(places))):
        with suppress(FileNotFoundError):
            os.replace(source, target)
    with path.open("r+b") as log:
        # A new file each time: by that, readers see that there was a rotation.
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
