"""OpenAI's Responses: answers as items, which a later request may go on from by naming the response.

https://platform.openai.com/docs/api-reference/responses
"""

from collections.abc import Sequence
from typing import Any, Final

import structlog
from aiohttp import web
from pydantic import TypeAdapter
from redis.exceptions import RedisError

from services.gateway.answering import read_body
from services.gateway.dialect import Identity
from services.gateway.errors import ApiError, invalid
from services.gateway.gateway import CALLER, GATEWAY
from services.gateway.preparation import count_tokens
from services.gateway.requests import GenerationRequest
from services.gateway.response_store import ResponseStore, StoredResponse
from services.gateway.responses_framing import Answered, ResponsesCollector, ResponsesFraming
from services.gateway.responses_items import Item, ReferenceItem, UnknownItem
from services.gateway.responses_request import parse_responses
from services.gateway.responses_tools import tool_choice, toolbox
from services.gateway.stores import Stores
from shared.broker import DISCONNECTED

logger = structlog.get_logger()

_ITEMS: Final = TypeAdapter(list[Item])


class ResponsesCall:
    """A checked Responses request."""

    def __init__(self, data: bytes) -> None:
        """Raises a 400 `ApiError` for a body that is not a Responses request."""
        self._request = parse_responses(data)
        self._box = toolbox(self._request.tools)
        self._choice = tool_choice(self._request.tool_choice, self._request.parallel_tool_calls, self._box)
        self._items: list[Item] = [item for item in self._request.input or [] if not isinstance(item, UnknownItem)]
        self._answered: Answered | None = None

    @property
    def streaming(self) -> bool:
        return self._request.stream

    @property
    def warnings(self) -> Sequence[str]:
        return self._request.warnings(self._box)

    async def resolve(self, stores: Stores) -> None:
        """Put what the request refers to in its place. Raises a 400 or 404 `ApiError` for what is not there."""
        self._items = [await _find_item(item, stores.responses) for item in self._items]
        previous = self._request.previous_response_id
        if previous is None:
            return
        stored = await stores.responses.find(previous)
        if stored is None:
            message = f"Previous response with id '{previous[:100]}' not found."
            raise invalid("previous_response_id", message, "previous_response_not_found")
        self._items = [*_ITEMS.validate_python(stored.items), *self._items]

    def generation(self) -> GenerationRequest:
        return self._request.generation(self._box, self._choice, self._items)

    def framing(self, identity: Identity) -> ResponsesFraming:
        return ResponsesFraming(self._answer(identity))

    def collector(self, identity: Identity) -> ResponsesCollector:
        return ResponsesCollector(self._answer(identity))

    async def keep(self, stores: Stores) -> None:
        """Store the response, unless the request said not to.

        Failures are logged only: the answer is there, and a request that goes on from it will be told.
        """
        if not self._request.store or self._answered is None:
            return
        response = self._answered.done()
        items = [*(item.model_dump(exclude_none=True) for item in self._items), *response["output"]]
        try:
            if not await stores.responses.keep(StoredResponse(response=response, items=items)):
                logger.warning("response_not_stored", response=response["id"], reason="it is too big")
        except (RedisError, *DISCONNECTED) as error:
            logger.warning("response_not_stored", response=response["id"], reason=type(error).__name__)

    def _answer(self, identity: Identity) -> Answered:
        self._answered = Answered(self._request, self._box, identity)
        return self._answered


async def _find_item(item: Item, store: ResponseStore) -> Item:
    """The item itself, where this one only refers to it."""
    if not isinstance(item, ReferenceItem):
        return item
    # An item's id holds that of its response.
    stored = await store.find(f"resp_{item.id.partition('_')[2].rpartition('_')[0]}")
    for output in stored.response["output"] if stored is not None else []:
        if output["id"] == item.id:
            [found] = _ITEMS.validate_python([output])
            return found
    message = f"Item with id '{item.id[:100]}' not found. Items are kept only of responses with `store` true."
    raise ApiError(404, message, param="input", code="item_not_found")


async def get_response(request: web.Request) -> web.Response:
    """A stored response."""
    if request.query.get("stream", "false") == "true":
        raise invalid("stream", "'stream': a stored response cannot be streamed again.", "unsupported_parameter")
    stored = await _store(request).find(request.match_info["id"])
    if stored is None:
        raise _missing(request)
    return web.json_response(stored.response)


async def delete_response(request: web.Request) -> web.Response:
    """Forget a stored response."""
    if not await _store(request).forget(request.match_info["id"]):
        raise _missing(request)
    deleted: dict[str, Any] = {"id": request.match_info["id"], "object": "response", "deleted": True}
    return web.json_response(deleted)


async def count_input(request: web.Request) -> web.Response:
    """How many tokens a request's input has, with all that the template adds."""
    gateway = request.app[GATEWAY]
    call = ResponsesCall(await read_body(request))
    stores = gateway.stores.of(request[CALLER])
    await call.resolve(stores)
    tokens = await count_tokens(call.generation(), gateway.directory, stores)
    return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})


def _store(request: web.Request) -> ResponseStore:
    return request.app[GATEWAY].stores.of(request[CALLER]).responses


def _missing(request: web.Request) -> ApiError:
    message = f"Response with id '{request.match_info['id'][:100]}' not found."
    return ApiError(404, message, code="response_not_found", param="response_id")
