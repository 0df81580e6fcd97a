"""The model hub behind `hf:`: lists a repository, finds its local files, and downloads the others.

Files go into the cache that all of Hugging Face's tools share (`HF_HOME`), in their client's layout.
`shared.model.download` downloads them, because since release 2 that client starts an interrupted file again.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec

from shared.model.download import Download, DownloadError, Report

if TYPE_CHECKING:
    from huggingface_hub import CachedRevisionInfo, HFCacheInfo

_LIST_S: Final = 10.0  # a hub that is slower than this counts as away, and the cache is used
_PAGES: Final = 100  # of a thousand files each
OFFLINE: Final = "HF_HUB_OFFLINE"  # keeps all of Hugging Face's tools off the network


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file of a repository, and the part of it on this machine."""

    path: str
    size: int
    sha256: str = ""  # as the hub gives it; empty if it does not
    kept: int = 0  # bytes of it that are here
    local: Path | None = None  # the whole file, if it is here


class _Lfs(msgspec.Struct, frozen=True):
    oid: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Entry(msgspec.Struct, frozen=True):
    type: str
    path: str
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    lfs: _Lfs | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The GGUF files of a repository; or, if `unasked` says why the hub did not answer, those in the cache."""

    files: Sequence[RemoteFile]
    unasked: str = ""


class Hub(Protocol):
    """What we need from a model hub. Both calls may raise `HubError`."""

    @property
    def folder(self) -> Path:
        """The folder for downloads; it may not exist yet."""

    def list_files(self, repository: str) -> Listing:
        """The files of the repository."""

    def download(self, repository: str, file: RemoteFile, report: Report) -> Path:
        """The local copy of one file, after downloading the missing part."""


class HubError(RuntimeError):
    """The hub refused or cannot be reached; the message is one line."""


class HuggingFace:
    """The Hugging Face hub, or a compatible one (`HF_ENDPOINT`). Offline it answers only from the cache."""

    # The imports are local, because they take a third of a second and most starts name a file.

    def __init__(
        self,
        endpoint: str | None = None,
        folder: Path | None = None,
        offline: bool | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Arguments that are None come from the environment. `pause` waits between tries."""
        from huggingface_hub import constants

        self._endpoint = endpoint or constants.ENDPOINT
        self._folder = folder or Path(constants.HF_HUB_CACHE)
        self._offline = is_offline() if offline is None else offline
        self._pause = pause

    @property
    def folder(self) -> Path:
        return self._folder

    def list_files(self, repository: str) -> Listing:
        """The repository's GGUF files; those in the cache if the hub cannot be reached or must not be asked."""
        from httpx2 import HTTPError
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        if self._offline:
            return Listing(self._cached(repository), f"offline, as --offline, DRAFTMESH_OFFLINE or {OFFLINE} says")
        try:
            return Listing([self._examined(repository, entry) for entry in self._entries(repository)])
        except (GatedRepoError, RepositoryNotFoundError) as error:
            raise HubError(_refusal(repository, error)) from None
        except (HTTPError, OSError, ValueError, msgspec.MsgspecError) as error:
            return Listing(self._cached(repository), f"the hub cannot be reached ({_one_line(error)})")

    def download(self, repository: str, file: RemoteFile, report: Report) -> Path:
        """The file's path in the cache, after downloading the missing part."""
        from httpx2 import HTTPError
        from huggingface_hub import constants, hf_hub_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        if file.local:
            return file.local
        try:
            # The hub does not serve larger files over plain HTTP, and its own protocol cannot continue a download.
            if file.sha256 and file.size <= constants.MAX_HTTP_DOWNLOAD_SIZE:
                self._fetch(repository, file, report)
            # Finds the blob in place and adds what makes it a file of the repository.
            return Path(hf_hub_download(repository, file.path, cache_dir=self._folder, endpoint=self._endpoint))
        except (GatedRepoError, RepositoryNotFoundError) as error:
            raise HubError(_refusal(repository, error)) from None
        except (DownloadError, HTTPError, OSError, ValueError) as error:
            raise HubError(_one_line(error)) from error

    def _entries(self, repository: str) -> Iterator[_Entry]:
        """The hub's list of GGUF files; the client's own call would retry for half a minute."""
        from huggingface_hub import get_session, hf_raise_for_status

        url: str | None = f"{self._endpoint}/api/models/{repository}/tree/main?recursive=true"
        for _ in range(_PAGES):
            if url is None:
                return
            response = get_session().get(url, headers=_headers(), timeout=_LIST_S)
            hf_raise_for_status(response)
            for entry in msgspec.json.decode(response.content, type=list[_Entry]):
                if entry.type == "file" and entry.path.lower().endswith(".gguf"):
                    yield entry
            url = response.links.get("next", {}).get("url")

    def _examined(self, repository: str, entry: _Entry) -> RemoteFile:
        from huggingface_hub import try_to_load_from_cache

        path, size, sha256 = entry.path, entry.size, entry.lfs.oid if entry.lfs else ""
        found = try_to_load_from_cache(repository, path, cache_dir=self._folder)
        if isinstance(found, str) and _is(Path(found), size, sha256):
            return RemoteFile(path=path, size=size, sha256=sha256, kept=size, local=Path(found))
        kept = 0
        if sha256:
            blob = self._blob(repository, sha256)
            kept = next((place.stat().st_size for place in (blob, _part(blob)) if place.exists()), 0)
        return RemoteFile(path=path, size=size, sha256=sha256, kept=min(kept, size))

    def _blob(self, repository: str, sha256: str) -> Path:
        """The cache's path for a file's bytes, named by their SHA-256."""
        from huggingface_hub.file_download import repo_folder_name

        return self._folder / repo_folder_name(repo_id=repository, repo_type="model") / "blobs" / sha256

    def _fetch(self, repository: str, file: RemoteFile, report: Report) -> None:
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status

        blob = self._blob(repository, file.sha256)
        Download(
            url=hf_hub_url(repository, file.path, endpoint=self._endpoint),
            headers=_headers(),
            part=_part(blob),
            target=blob,
            lock=self._folder / ".locks" / blob.parents[1].name / f"{blob.name}.lock",  # as the hub's client locks it
            size=file.size,
            digest=file.sha256,
            refused=hf_raise_for_status,
            pause=self._pause or time.sleep,
        ).run(get_session(), report)

    def _cached(self, repository: str) -> list[RemoteFile]:
        cache = scan(self._folder)
        revisions = [
            revision
            for cached in (cache.repos if cache else ())
            if cached.repo_id == repository and cached.repo_type == "model"
            for revision in cached.revisions
        ]
        if not revisions:
            return []
        known = branch(revisions)
        return [
            RemoteFile(
                path=file.file_path.relative_to(known.snapshot_path).as_posix(),
                size=file.size_on_disk,
                kept=file.size_on_disk,
                local=file.file_path,
            )
            for file in known.files
            if file.file_name.lower().endswith(".gguf")
        ]


def scan(folder: Path | None = None) -> "HFCacheInfo | None":
    """The contents of the cache in `folder` (None: the usual one); None without a cache."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return scan_cache_dir(folder)
    except CacheNotFound:
        return None


def branch(revisions: Iterable["CachedRevisionInfo"]) -> "CachedRevisionInfo":
    """The cached revision that a repository's name means: its branch as last seen.

    A revision that was fetched by its hash has no branch, and counts if there is no other.
    """
    return max(revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))


def go_offline() -> None:
    """Keep this process and its children from downloading models.

    Call it before anything asks for a hub, because its client reads the variable once.
    """
    os.environ[OFFLINE] = "1"


def is_offline() -> bool:
    """Whether the hub must not be used."""
    from huggingface_hub import constants

    return constants.is_offline_mode()


def _headers() -> dict[str, str]:
    """Our name, and the user's token if there is one."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return dict(build_hf_headers())


def _is(path: Path, size: int, sha256: str) -> bool:
    """Whether the cache's `path` is the file the hub has now: its link leads to the bytes by their SHA-256."""
    place = path.resolve()
    return place.stat().st_size == size and (not sha256 or not path.is_symlink() or place.name == sha256)


def _part(blob: Path) -> Path:
    """The path where the hub's tools look for incomplete downloads, and clean them up."""
    return blob.with_name(f"{blob.name}.incomplete")


def _refusal(repository: str, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError):
        return f"gated: accept its terms at https://huggingface.co/{repository}, then set HF_TOKEN to a token of yours"
    return "the hub has no such repository, or it is private (set HF_TOKEN to a token that may read it)"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
