"""The manifest in a backend's folder: the release of its package, and the digest of every file."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "backend.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backend's folder."""

    version: str  # of the package
    digests: dict[str, str]  # SHA-256 in hexadecimal, by the name of the file


def describe(folder: Path, version: str) -> None:
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    (folder / _FILE).write_bytes(msgspec.json.encode(Manifest(version=version, digests=digests)))


def read(folder: Path) -> Manifest | None:
    """The manifest of `folder`; None if it cannot be read or does not exist, as for a backend that a user built."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def damaged(folder: Path) -> str:
    """The first file that differs from the manifest, or an empty text."""
    manifest = read(folder)
    expected = manifest.digests if manifest else {}
    return next((name for name, digest in expected.items() if _digest(folder / name) != digest), "")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
