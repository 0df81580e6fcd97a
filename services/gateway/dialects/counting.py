"""Counts the tokens of the prompt that a request would have, and generates nothing."""

from aiohttp import web

from services.gateway.generation.preparation import count_tokens
from services.gateway.http.answering import read_body
from services.gateway.http.dialect import Dialect
from services.gateway.http.gateway import CALLER, GATEWAY


class TokenCount:
    """The handler of a dialect's counting route: answers `{"input_tokens": n}`, with `head` before it."""

    def __init__(self, dialect: Dialect, **head: str) -> None:
        self._dialect = dialect
        self._head = head

    async def handle(self, request: web.Request) -> web.Response:
        """Counts tools, instructions and messages, even if they would not fit. Raises `ApiError`."""
        gateway = request.app[GATEWAY]
        with gateway.activity.enter():
            exchange = self._dialect.parse(await read_body(request))
            stores = gateway.stores.of(request[CALLER])
            await exchange.resolve(stores)
            tokens = await count_tokens(exchange.generation(), gateway.directory, stores)
        return web.json_response({**self._head, "input_tokens": tokens})
