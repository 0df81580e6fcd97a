"""Downloads a file over HTTP: continues an earlier try, and delivers the whole and correct file or none.

After Ctrl-C, a crash or a lost connection the downloaded bytes stay in a part file and are not downloaded again. Their
digest is computed as they come. Ranges: RFC 9110 §14.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from filelock import FileLock

if TYPE_CHECKING:
    from httpx2 import Client, Response

Report = Callable[[int, int], None]  # bytes so far, bytes in all

_TRIES: Final = 5  # tries without new data: a hub is back within seconds, or away for longer than users wait
_TIMEOUT_S: Final = 20.0  # a connection that is silent for so long is dead
_CHUNK: Final = 1 << 20
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})


class DownloadError(RuntimeError):
    """The download failed; the message is one line."""


class _Busy(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file to fetch from `url` to `target`, through `part` beside it."""

    url: str
    headers: Mapping[str, str]
    part: Path
    target: Path
    lock: Path
    size: int
    digest: str = ""  # in hexadecimal; empty: none is known, and only the size is checked
    algorithm: str = "sha256"  # as hashlib names it
    refused: Callable[["Response"], None]  # raises for a status that another try would not change
    pause: Callable[[float], Any] = field(default=time.sleep)

    def run(self, client: "Client", report: Report) -> None:
        """Download the missing part. Raises `DownloadError`, what `refused` raises, and `OSError` of the disk.

        If several processes want the same file, one downloads it and the others wait.
        """
        for place in (self.part, self.lock):
            place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.lock):
            if self.target.exists():
                return
            try:
                with self.part.open("ab+", _CHUNK) as file:
                    digest = self._fetch(client, file, report)
            finally:
                if self.part.stat().st_size == 0:
                    self.part.unlink()
            self._check(digest)
            self.part.replace(self.target)

    def _fetch(self, client: "Client", file: BinaryIO, report: Report) -> "hashlib._Hash":
        from httpx2 import TransportError

        digest = self._kept(file)
        tries = 0
        while (have := file.tell()) < self.size:
            report(have, self.size)
            try:
                digest = self._attempt(client, file, digest, report)
                problem = "the connection ended early"
            except (TransportError, _Busy) as error:
                problem = " ".join(str(error).split()) or type(error).__name__
            tries = tries + 1 if file.tell() <= have else 0
            if file.tell() < self.size:
                if tries == _TRIES:
                    raise DownloadError(
                        f"gave up after {_TRIES} tries without new data ({problem}); the downloaded part is kept"
                    )
                self.pause(2.0**tries)
        return digest

    def _kept(self, file: BinaryIO) -> "hashlib._Hash":
        """The digest of an earlier try's part; a part longer than the file is discarded."""
        if file.tell() > self.size:
            file.truncate(0)
        file.seek(0)
        digest = hashlib.new(self.algorithm)
        while block := file.read(_CHUNK):
            digest.update(block)
        return digest

    def _attempt(self, client: "Client", file: BinaryIO, digest: "hashlib._Hash", report: Report) -> "hashlib._Hash":
        """Make one request, append its bytes, and return the digest of the whole part."""
        have = file.tell()
        headers = {**self.headers, "Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with client.stream("GET", self.url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=True) as response:
            if response.status_code in _BUSY:
                raise _Busy(f"the server answers {response.status_code}")
            if response.status_code >= 400:
                response.read()
                self.refused(response)
            if have and not _continues(response, have):
                file.truncate(0)
                file.seek(0)
                digest = hashlib.new(self.algorithm)
            for block in response.iter_raw():
                if file.tell() + len(block) > self.size:
                    file.truncate(0)
                    raise DownloadError(f"the server sends more than the {self.size} bytes that it announced")
                file.write(block)
                digest.update(block)
                report(file.tell(), self.size)
        return digest

    def _check(self, digest: "hashlib._Hash") -> None:
        found = digest.hexdigest()
        if self.digest and found != self.digest:
            self.part.unlink()
            raise DownloadError(
                f"the download has the {self.algorithm.upper()} {found[:16]}… instead of {self.digest[:16]}…;"
                " the bad copy is removed, so try again"
            )


def _continues(response: "Response", have: int) -> bool:
    return response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
