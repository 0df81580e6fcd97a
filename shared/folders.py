"""The folders of draftmesh: for its cache, its state, its data and its settings."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`DRAFTMESH_CACHE`, or `draftmesh` in the user's cache folder (XDG base directories). Not created here."""
    chosen = os.environ.get("DRAFTMESH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "draftmesh"


def state_folder() -> Path:
    """`draftmesh` in the user's folder for the state of programs (XDG base directories). Not created here."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "draftmesh"


def data_folder() -> Path:
    """`draftmesh` in the user's folder for data that programs need (XDG base directories). Not created here."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "draftmesh"


def config_folder() -> Path:
    """`draftmesh` in the user's folder for settings (XDG base directories). Not created here; a home is not needed."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.path.expanduser(base)) / "draftmesh"
