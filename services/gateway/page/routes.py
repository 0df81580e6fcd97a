"""Serves the page: reads its files once, and never looks up a name from a request on the disk."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from aiohttp import web

from services.gateway.errors import ApiError

_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_INDEX: Final = "index.html"
_PLACE: Final = b"page/VERSION/"  # as the page refers to its files
_POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept, Accept-Encoding",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # a changed file has another address


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent."""

    body: bytes
    zipped: bytes
    media: str


@dataclass(frozen=True, slots=True)
class Page:
    """The page's own text, and its files by name. `version` names exactly these contents."""

    index: PageFile
    files: Mapping[str, PageFile]
    version: str


@cache
def load() -> Page:
    """The page as it was packaged."""
    folder = resources.files(__package__)
    bodies = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _TYPES}
    index = (folder / _INDEX).read_bytes()
    digest = hashlib.sha256(index)
    for name, body in sorted(bodies.items()):
        digest.update(b"\0".join((name.encode(), body)))
    version = digest.hexdigest()[:16]
    files = {name: _file(body, _TYPES[name.rpartition(".")[2]]) for name, body in bodies.items()}
    return Page(_file(index.replace(_PLACE, f"page/{version}/".encode()), "text/html"), files, version)


def _file(body: bytes, media: str) -> PageFile:
    return PageFile(body, gzip.compress(body, 9, mtime=0), media)


async def root(request: web.Request) -> web.Response:
    """The page for browsers, one line for other clients, which look only at the status."""
    if "text/html" not in request.headers.get("Accept", ""):
        line = "draftmesh is running. GET /v1/models lists what it serves.\n"
        return web.Response(text=line, headers={"Vary": "Accept"})
    page = load()
    tag = f'"{page.version}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers={**_HEADERS, **headers})
    return _sent(request, page.index, headers)


async def asset(request: web.Request) -> web.Response:
    """One file of this version of the page. Raises a 404 `ApiError`."""
    page = load()
    file = page.files.get(request.match_info["name"])
    if file is None or request.match_info["version"] != page.version:
        raise ApiError(404, "The page has no such file; reload the page.", code="not_found")
    return _sent(request, file, {"Cache-Control": _FOR_EVER, "ETag": f'"{page.version}"'})


def _sent(request: web.Request, file: PageFile, headers: Mapping[str, str]) -> web.Response:
    headers = {**_HEADERS, **headers}
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = file.zipped, "gzip"
    return web.Response(body=body, content_type=file.media, charset="utf-8", headers=headers)
