"""OpenAI's Responses: answers as items. A later request may continue a response by naming it.

https://platform.openai.com/docs/api-reference/responses
"""

from typing import Final

import structlog
from pydantic import TypeAdapter
from redis.exceptions import RedisError

from services.gateway.dialects.responses.answer import ResponsesAnswer
from services.gateway.dialects.responses.items import Item, ReferenceItem, UnknownItem
from services.gateway.dialects.responses.request import parse_responses
from services.gateway.dialects.responses.tools import tool_choice, toolbox
from services.gateway.errors import ApiError, invalid
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Exchange, Identity
from services.gateway.requests.types import GenerationRequest
from services.gateway.storage.response_store import ResponseStore, StoredResponse
from services.gateway.storage.stores import Stores
from shared.wire.broker import DISCONNECTED

logger = structlog.get_logger()

_ITEMS: Final = TypeAdapter(list[Item])


class ResponsesExchange(Exchange):
    """A checked Responses request."""

    def __init__(self, data: bytes) -> None:
        """Raises a 400 `ApiError` for a body that is not a Responses request."""
        self._request = parse_responses(data)
        self._box = toolbox(self._request.tools)
        self._choice = tool_choice(self._request.tool_choice, self._request.parallel_tool_calls, self._box)
        self._items: list[Item] = [item for item in self._request.input or [] if not isinstance(item, UnknownItem)]
        self._answer: ResponsesAnswer | None = None
        self.streaming = self._request.stream
        self.background = self._request.background  # whether generation continues when the client leaves
        self.warnings = self._request.warnings(self._box)

    async def resolve(self, stores: Stores) -> None:
        """Replace references by what they refer to. Raises a 400 or 404 `ApiError` for a reference to nothing."""
        self._items = [await _find_item(item, stores.responses) for item in self._items]
        previous = self._request.previous_response_id
        if previous is None:
            return
        stored = await stores.responses.find(previous)
        if stored is None:
            if await stores.records.find(previous) is not None:
                message = f"Previous response with id '{previous}' is not complete."
                raise invalid("previous_response_id", message, "previous_response_not_complete")
            message = f"Previous response with id '{previous[:100]}' not found."
            raise invalid("previous_response_id", message, "previous_response_not_found")
        self._items = [*_ITEMS.validate_python(stored.items), *self._items]

    def generation(self) -> GenerationRequest:
        return self._request.generation(self._box, self._choice, self._items)

    def answer(self, identity: Identity, usage: UsageTally) -> ResponsesAnswer:
        self._answer = ResponsesAnswer(self._request, self._box, identity, usage)
        return self._answer

    async def keep(self, stores: Stores) -> None:
        """Store the response, unless the request said not to.

        Only logs a failure: the client has its answer, and a request that continues it gets an error.
        """
        if not self._request.store or self._answer is None:
            return
        response = self._answer.done()
        items = [*(item.model_dump(exclude_none=True) for item in self._items), *response["output"]]
        try:
            if not await stores.responses.keep(StoredResponse(response=response, items=items)):
                logger.warning("response_not_stored", response=response["id"], reason="it is too big")
        except (RedisError, *DISCONNECTED) as error:
            logger.warning("response_not_stored", response=response["id"], reason=type(error).__name__)


async def _find_item(item: Item, store: ResponseStore) -> Item:
    """The item, or the one to which it refers."""
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
