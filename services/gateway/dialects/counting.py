"""Counts the tokens of a request's prompt, exactly as the request itself would have them, and generates nothing."""

from aiohttp import web

from services.gateway.errors import REDIS_DOWN, unavailable
from services.gateway.generation.preparation import count_tokens
from services.gateway.http.answering import read_body
from services.gateway.http.dialect import Dialect
from services.gateway.http.gateway import CALLER, GATEWAY
from shared.wire.broker import DISCONNECTED


class TokenCount:
    """The handler of the route beside a dialect's that tells `{"input_tokens": n}`, with `head` before it."""

    def __init__(self, dialect: Dialect, **head: str) -> None:
        self._dialect = dialect
        self._head = head

    async def handle(self, request: web.Request) -> web.Response:
        """Tools, instructions and messages count, also where they would not fit. Raises `ApiError`."""
        gateway = request.app[GATEWAY]
        with gateway.activity.enter():
            exchange = self._dialect.parse(await read_body(request))
            stores = gateway.stores.of(request[CALLER])
            try:
                await exchange.resolve(stores)
                tokens = await count_tokens(exchange.generation(), gateway.directory, stores)
            except DISCONNECTED as error:
                raise unavailable(REDIS_DOWN) from error
        return web.json_response({**self._head, "input_tokens": tokens})
