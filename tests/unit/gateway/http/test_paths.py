"""Doubled and trailing slashes find the route of the tidy path, and only where no route has the path itself."""

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from services.gateway.http.paths import TidiedPaths, tidy


async def said(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.match_info.get('id', '')} {request.query_string} {await request.text()}")


def application() -> web.Application:
    app = web.Application()
    app.router.add_post("/v1/chat", said)
    app.router.add_get("/v1/models/{id:.+}", said)
    app.router.add_get("/v1/models", said)
    app.router.add_get("/", said)
    app.router.register_resource(TidiedPaths(app.router))
    return app


@pytest.mark.parametrize(
    ("path", "tidied"),
    [("/", "/"), ("//", "/"), ("/v1/", "/v1"), ("//v1//chat/", "/v1/chat"), ("/v1/chat", "/v1/chat")],
)
def test_tidy_paths(path: str, tidied: str) -> None:
    assert tidy(path) == tidied


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/v1/chat", 200, "  body"),
        ("POST", "//v1/chat", 200, "  body"),
        ("POST", "/v1/chat/?a=1", 200, " a=1 body"),
        ("POST", "/v1//chat//", 200, "  body"),
        ("GET", "//v1/models/org/name", 200, "org/name  body"),
        ("GET", "/v1/models/org//name", 200, "org//name  body"),  # the route itself takes it
        ("GET", "/v1/models/", 200, "  body"),
        ("GET", "//", 200, "  body"),
        ("GET", "//v1/chat/", 405, "405: Method Not Allowed"),
        ("POST", "//v2/chat", 404, "404: Not Found"),
    ],
)
async def test_routes_of_untidy_paths(method: str, path: str, status: int, text: str) -> None:
    async with TestServer(application()) as server, ClientSession() as session:
        url = f"{server.make_url('/').origin()}{path}"
        async with session.request(method, url, data=b"body") as response:
            assert (response.status, await response.text()) == (status, text)
