"""Counts the tokens of the prompt that a request would have, and generates nothing."""

from aiohttp import web

from services.gateway.generation.preparation import count_tokens
from services.gateway.http.answering import Handler, read_body
from services.gateway.http.dialect import Dialect
from services.gateway.http.gateway import CALLER, GATEWAY


def token_count(dialect: Dialect, **head: str) -> Handler:
    """The handler of a dialect's counting route: answers `{"input_tokens": n}`, with `head` before it."""

    async def handle(request: web.Request) -> web.Response:
        """Counts tools, instructions and messages, even if they would not fit. Raises `ApiError`."""
        gateway = request.app[GATEWAY]
        with gateway.activity.enter():
            exchange = dialect.parse(await read_body(request))
            stores = gateway.stores.of(request[CALLER])
            await exchange.resolve(stores)
            tokens = await count_tokens(exchange.generation(), gateway.directory, stores)
        return web.json_response({**head, "input_tokens": tokens})

    return handle
