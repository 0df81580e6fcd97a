"""Takes single files out of a package, under names of ours; no path in the archive decides where they go."""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO


class BrokenArchive(RuntimeError):
    """The archive cannot be read, or lacks a file."""


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write each of `members`, a name by a path in the archive, into `folder`. Raises `BrokenArchive` and `OSError`."""
    missing = set(members)
    try:
        for path, source in (_of_wheel if archive.suffix == ".whl" else _of_tarball)(archive, members):
            with source, (folder / members[path]).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            missing.discard(path)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise BrokenArchive(f"{archive.name} cannot be unpacked ({error})") from None
    if missing:
        raise BrokenArchive(f"{archive.name} lacks {min(missing)}")


def _of_wheel(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as wheel:
        for path in wheel.namelist():
            if path in wanted:
                yield path, wheel.open(path)


def _of_tarball(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Reads in one pass, because going back in a compressed file means reading it again."""
    with tarfile.open(archive, "r|gz") as tarball:
        for member in tarball:
            file = tarball.extractfile(member) if member.isfile() and member.name in wanted else None
            if file is not None:
                yield member.name, file
