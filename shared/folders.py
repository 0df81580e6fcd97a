"""Where draftmesh keeps what it can make again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`DRAFTMESH_CACHE`, or `draftmesh` in the user's cache folder (XDG base directories). Not created here."""
    chosen = os.environ.get("DRAFTMESH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "draftmesh"
