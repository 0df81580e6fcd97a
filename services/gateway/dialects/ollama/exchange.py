"""Ollama's chat and generate: objects on lines of their own, or one object with the same content.

A request without a message or a prompt asks only to load the model, so the gateway answers it at once.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from services.gateway.dialects.ollama.answer import OllamaAnswer, Shape, as_message, as_response, head
from services.gateway.dialects.ollama.request import ChatBody, GenerateBody, parse
from services.gateway.errors import ApiError
from services.gateway.http.answering import Endpoint, Handler, read_body
from services.gateway.http.dialect import Dialect, StatelessExchange
from services.gateway.http.gateway import GATEWAY

NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"


class OllamaExchange(StatelessExchange[ChatBody | GenerateBody]):
    """A checked request of either kind."""

    def __init__(self, body: ChatBody | GenerateBody, shape: Shape) -> None:
        self.shape = shape
        began_s = time.monotonic()
        super().__init__(body, lambda body, identity, usage: OllamaAnswer(shape, body, identity, usage, began_s))


def chat_exchange(data: bytes) -> OllamaExchange:
    """A chat request. Raises a 400 `ApiError`."""
    return OllamaExchange(parse(data, ChatBody), as_message)


def generate_exchange(data: bytes) -> OllamaExchange:
    """A generate request. Raises a 400 `ApiError`."""
    return OllamaExchange(parse(data, GenerateBody), as_response)


def ollama_endpoint(exchange_of: Callable[[bytes], OllamaExchange]) -> Handler:
    """The handler of one of the two routes."""

    async def handle(request: web.Request) -> web.StreamResponse:
        """Answer. Raises `ApiError` only before headers."""
        try:
            exchange = exchange_of(await read_body(request))
        except ApiError:
            return await Endpoint(Dialect(exchange_of)).handle(request)  # refuses it in the same way, and counts it
        if exchange.body.empty:
            return await _loaded(request, exchange)
        return await Endpoint(Dialect(lambda _: exchange, NDJSON)).handle(request)

    return handle


async def _loaded(request: web.Request, exchange: OllamaExchange) -> web.Response:
    """Says that the model is loaded: a served model always is, whatever `keep_alive` asks for."""
    model = await request.app[GATEWAY].directory.find(exchange.body.model)
    reason = "unload" if exchange.body.keep_alive in (0, "0", "0s") else "load"
    body = {**head(model.name), **exchange.shape({}), "done": True, "done_reason": reason}
    return web.Response(body=msgspec.json.encode(body) + b"\n", content_type=NDJSON if exchange.streaming else JSON)
