"""The folders of draftmesh: for its cache, its state, its data and its settings."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`DRAFTMESH_CACHE`, or `draftmesh` in the user's cache folder (XDG base directories). Not created here."""
    chosen = os.environ.get("DRAFTMESH_CACHE")
    return Path(chosen or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/draftmesh").expanduser()


def state_folder() -> Path:
    """`draftmesh` in the user's folder for the state of programs (XDG base directories). Not created here."""
    return _of_user("XDG_STATE_HOME", "~/.local/state")


def data_folder() -> Path:
    """`draftmesh` in the user's folder for data that programs need (XDG base directories). Not created here."""
    return _of_user("XDG_DATA_HOME", "~/.local/share")


def _of_user(variable: str, usual: str) -> Path:
    if sys.platform == "win32":
        variable, usual = "LOCALAPPDATA", "~/AppData/Local"
    return Path(os.environ.get(variable) or usual).expanduser() / "draftmesh"


def config_folder() -> Path:
    """`draftmesh` in the user's folder for settings (XDG base directories). Not created here; a home is not needed."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.path.expanduser(base)) / "draftmesh"
