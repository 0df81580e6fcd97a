"""The files of a backend's packages on this machine: taken from a folder, or downloaded if they are missing."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from services.launcher.backends import registries
from services.launcher.backends.catalogue import Package
from shared.folders import cache_folder
from shared.model import hub
from shared.model.download import Download, DownloadError

if TYPE_CHECKING:
    from httpx2 import Response

Report = Callable[[str, int, int], None]  # the file, its bytes that are here, its bytes

_FORBIDDEN: Final = (401, 403, 407)


def downloads() -> Path:
    """Where files wait until they are unpacked."""
    return cache_folder() / "backends"


def kept(package: Package) -> int:
    """Bytes of the package's file that are here."""
    whole = downloads() / package.file
    return next((place.stat().st_size for place in (whole, _part(whole)) if place.exists()), 0)


def from_folder(package: Package, folder: Path) -> Path:
    """The package's file in `folder`, checked. Raises `DownloadError`."""
    path = folder / package.file
    if not path.is_file():
        raise DownloadError(f"{package.file} is not in {folder}; `{package.command} {folder}` puts it there")
    found = _digest(package, path)
    if found != package.digest:
        raise DownloadError(
            f"{path} has the {package.algorithm.upper()} {found[:16]}… and should have {package.digest[:16]}…;"
            f" `{package.command} {folder}` fetches it again"
        )
    return path


def fetch(package: Package, report: Report) -> Path:
    """The package's file, after downloading the missing part. Raises `DownloadError`, and `OSError` of the disk."""
    whole = downloads() / package.file
    if whole.exists():
        if _digest(package, whole) == package.digest:
            return whole
        whole.unlink()
    if hub.is_offline():
        raise DownloadError(f"offline, and {package.file} is not here; use the network, or name its folder with --from")
    found = registries.address(package)
    if found.url.startswith("file:"):
        return from_folder(package, Path(unquote(urlsplit(found.url).path)).parent)
    with found.client() as client:
        _download(package, found.url, whole).run(client, lambda done, size: report(package.file, done, size))
    return whole


def _digest(package: Package, path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, package.algorithm).hexdigest()


def _download(package: Package, url: str, whole: Path) -> Download:
    return Download(
        url=url,
        headers={},
        part=_part(whole),
        target=whole,
        lock=whole.with_name(f".{package.file}.lock"),
        size=package.size,
        digest=package.digest,
        algorithm=package.algorithm,
        refused=lambda response: _refuse(package, response),
    )


def _refuse(package: Package, response: "Response") -> None:
    """Raises for an answer that another try would not change."""
    status = response.status_code
    login = " without your login, which only its client has" if status in _FORBIDDEN else ""
    raise DownloadError(
        f"the registry answers {status} for {package.file}{login}: `{package.command} FOLDER` may fetch it, and"
        " --from FOLDER uses it"
    )


def _part(whole: Path) -> Path:
    return whole.with_name(f"{whole.name}.incomplete")
