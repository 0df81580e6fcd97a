"""The routes of stored responses: each caller sees and forgets its own."""

from typing import Literal

from aiohttp import web
from pydantic import BaseModel

from services.gateway.errors import ApiError, invalid
from services.gateway.gateway import CALLER, GATEWAY
from services.gateway.responses.store import ResponseStore


class Deleted(BaseModel):
    """What is left of a response that was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


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
    return web.json_response(Deleted(id=request.match_info["id"]).model_dump())


def _store(request: web.Request) -> ResponseStore:
    return request.app[GATEWAY].stores.of(request[CALLER]).responses


def _missing(request: web.Request) -> ApiError:
    message = f"Response with id '{request.match_info['id'][:100]}' not found."
    return ApiError(404, message, code="response_not_found", param="response_id")
