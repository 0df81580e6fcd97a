"""Finds routes for paths with doubled or trailing slashes, which base addresses with a slash at their end make.

A redirect would not do: many clients do not follow one for a POST.
"""

import re
from collections.abc import Iterator
from typing import Final, NoReturn

from aiohttp import web
from aiohttp.web_urldispatcher import AbstractResource, AbstractRoute, UrlMappingMatchInfo

_SLASHES: Final = re.compile("//+")


def tidy(path: str) -> str:
    """The path with single slashes and none at its end."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


class TidiedPaths(AbstractResource):
    """The last resource of a router: resolves a path that no other resource knows as its tidy form."""

    def __init__(self, router: web.UrlDispatcher) -> None:
        super().__init__()
        self._router = router

    @property
    def canonical(self) -> str:
        return "/"

    async def resolve(self, request: web.Request) -> tuple[UrlMappingMatchInfo | None, set[str]]:
        """The route of the tidy path, and else the methods that the path has."""
        path = tidy(request.rel_url.raw_path)
        if path == request.rel_url.raw_path:
            return None, set()
        found = await self._router.resolve(request.clone(rel_url=request.rel_url.with_path(path, encoded=True)))
        refusal = found.http_exception
        if refusal is None:
            return found, set()
        return None, refusal.allowed_methods if isinstance(refusal, web.HTTPMethodNotAllowed) else set()

    def get_info(self) -> NoReturn:
        raise NotImplementedError

    def url_for(self, **kwargs: str) -> NoReturn:
        raise NotImplementedError

    def add_prefix(self, prefix: str) -> NoReturn:
        raise NotImplementedError

    def raw_match(self, path: str) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[AbstractRoute]:
        return iter(())
