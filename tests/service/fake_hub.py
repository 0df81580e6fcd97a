"""A model hub on the loopback interface that speaks as much of the Hugging Face hub's HTTP as its client asks.

Files are served as the hub serves LFS files: the listing and the headers name their SHA-256 and size, and a redirect
leads to another name of this machine that has the bytes, of which ranges can be had.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

COMMIT = "1" * 40
GGUF = b"GGUF"


def model_bytes(size: int, seed: int = 0) -> bytes:
    """`size` bytes that begin as a GGUF does and differ by `seed`."""
    return (GGUF + bytes((index * 7 + seed) % 251 for index in range(size)))[:size]


@dataclass(frozen=True, slots=True)
class Served:
    """One answer with bytes: from which offset, how many."""

    path: str
    start: int
    sent: int


@dataclass(slots=True)
class FakeHub:
    """Repositories by name, each with files by path; what the tests let go wrong; what was asked."""

    repositories: dict[str, dict[str, bytes]]
    cuts: list[int] = field(default_factory=list)  # the next answers with bytes end after so many of them
    busy: int = 0  # so many of the next requests for bytes are answered with 503
    stall_after: int | None = None  # answers with bytes come to a halt there
    lies: Mapping[str, bytes] = field(default_factory=dict)  # what is sent instead, by path
    listing: bytes = b""  # what is answered instead of a listing
    gated: frozenset[str] = frozenset()  # repositories whose files need `token`
    token: str = "secret-token"
    ranges: bool = True
    served: list[Served] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)  # files whose storage was shown the user's token
    requests: list[str] = field(default_factory=list)
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> "FakeHub":
        application = web.Application()
        application.router.add_get("/api/models/{user}/{repo}/tree/main", self._tree)
        application.router.add_route("*", "/{user}/{repo}/resolve/{revision}/{path:.+}", self._resolve)
        application.router.add_get("/bytes/{user}/{repo}/{path:.+}", self._bytes)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _tree(self, request: web.Request) -> web.Response:
        self.requests.append(f"list {_name(request)}")
        if self.listing:
            return web.Response(body=self.listing)
        files = self.repositories.get(_name(request))
        if files is None:
            return web.json_response({}, status=404, headers={"X-Error-Code": "RepoNotFound"})
        first = int(request.query.get("cursor", 0))
        page = [
            {
                "type": "file",
                "path": path,
                "size": len(data),
                "oid": "0" * 40,
                "lfs": {"oid": _digest(data), "size": len(data), "pointerSize": 134},
            }
            for path, data in sorted(files.items())[first : first + 2]
        ]
        more = first + 2 < len(files)
        link = f'<{self.url}{request.path}?recursive=true&cursor={first + 2}>; rel="next"'
        return web.json_response(page, headers={"Link": link} if more else {})

    async def _resolve(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        self.requests.append(f"{request.method} {path}")
        data = self.repositories.get(_name(request), {}).get(path)
        if data is None:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        if _name(request) in self.gated and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(
                status=403 if "Authorization" in request.headers else 401, headers={"X-Error-Code": "GatedRepo"}
            )
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Etag": f'"{_digest(data)}"',
            "X-Linked-Size": str(len(data)),
        }
        if request.method == "HEAD":
            return web.Response(headers=headers)
        return web.Response(status=302, headers={**headers, "Location": self._storage(path, request)})

    def _storage(self, path: str, request: web.Request) -> str:
        """Where the bytes are: another host, by its name."""
        return f"{self.url.replace('127.0.0.1', 'localhost')}/bytes/{_name(request)}/{path}"

    async def _bytes(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        if "Authorization" in request.headers:
            self.leaks.append(path)
        if self.busy:
            self.busy -= 1
            return web.Response(status=503)
        data = self.lies.get(path, self.repositories[_name(request)][path])
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        start = int(asked[1]) if asked and self.ranges else 0
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = len(data) - start
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        await response.prepare(request)
        end = len(data)
        if self.cuts:
            end = min(end, start + self.cuts.pop(0))
        if self.stall_after is not None:
            end = min(end, self.stall_after)
        await response.write(data[start:end])
        self.served.append(Served(path, start, end - start))
        if end < len(data) and request.transport is not None:
            if self.stall_after is not None:
                self.stalled.set()
                while not request.transport.is_closing():  # noqa: ASYNC110 - the client's leaving sets no event
                    await asyncio.sleep(0.01)
            request.transport.close()
        return response


def _name(request: web.Request) -> str:
    return f"{request.match_info['user']}/{request.match_info['repo']}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
