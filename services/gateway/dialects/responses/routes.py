"""The routes of stored and background responses: each caller reads, cancels and deletes its own."""

import asyncio
from typing import Any, Final, Literal

from aiohttp import web
from pydantic import BaseModel

from services.gateway.dialects.responses.answer import unframed
from services.gateway.dialects.responses.following import follow
from services.gateway.errors import ApiError, draining, invalid
from services.gateway.http.gateway import CALLER, GATEWAY
from services.gateway.storage.records import Record
from services.gateway.storage.stores import Stores
from shared.wire.jobs import JobStore

_SETTLE_S: Final = 5.0  # a verifier learns of a cancellation at its next commit
_QUEUED: Final = 2  # events before a verifier works on a response


class Deleted(BaseModel):
    """What is left of a response that was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


async def get_response(request: web.Request) -> web.StreamResponse:
    """A response as it is now; with `stream=true` the events of a background response."""
    stores, response_id = _stores(request), request.match_info["id"]
    if request.query.get("stream", "false") == "true" and request.method == "GET":
        return await _stream(request, response_id)
    stored = await stores.responses.find(response_id)
    if stored is not None:
        return web.json_response(stored.response)
    record = await stores.records.find(response_id)
    if record is None:
        raise _missing(request)
    return web.json_response(_state(record))


async def _stream(request: web.Request, response_id: str) -> web.StreamResponse:
    after = _after(request)
    stores, gateway = _stores(request), request.app[GATEWAY]
    if gateway.activity.draining:
        raise draining()
    record = await stores.records.find(response_id)
    if record is None:
        if await stores.responses.find(response_id) is None:
            raise _missing(request)
        message = "'stream': only background responses can be streamed again, for one hour."
        raise invalid("stream", message, "unsupported_parameter")
    if after > record.newest.number:
        message = f"'starting_after': there is no event {after}; the newest is {record.newest.number}."
        raise invalid("starting_after", message)
    if record.newest.last and after == record.newest.number:
        return web.Response(status=204)  # the status on which clients stop reconnecting
    with gateway.activity.stay():
        return await follow(request, response_id, record.first, after)


def _after(request: web.Request) -> int:
    """The event after which to begin; -1: before the first. A client that reconnects changes only its header."""
    text = request.headers.get("Last-Event-ID") or request.query.get("starting_after")
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise invalid("starting_after", "'starting_after' (or Last-Event-ID) is an event's sequence_number.")
    return int(text)


async def cancel_response(request: web.Request) -> web.Response:
    """Cancel a background response; one that has ended stays as it is."""
    stores, gateway, response_id = _stores(request), request.app[GATEWAY], request.match_info["id"]
    record = await stores.records.find(response_id)
    if record is None:
        stored = await stores.responses.find(response_id)
        if stored is None:
            raise _missing(request)
        if not stored.response.get("background"):
            raise invalid("response_id", "Only background responses can be cancelled.")
        return web.json_response(stored.response)
    if not record.newest.last:
        await _cancel(request, record)
        until = asyncio.get_running_loop().time() + _SETTLE_S
        with gateway.record_follower.watch(stores.records.key(response_id), record.newest.number) as watch:
            while not record.newest.last and (left := until - asyncio.get_running_loop().time()) > 0:
                await watch.wait(left)
                record = await stores.records.find(response_id)
                if record is None:
                    raise _missing(request)
    return web.json_response(_state(record))


async def delete_response(request: web.Request) -> web.Response:
    """Delete a response, and cancel it if it runs."""
    stores, response_id = _stores(request), request.match_info["id"]
    record = await stores.records.find(response_id)
    if record is not None and not record.newest.last:
        await _cancel(request, record)
    recorded = await stores.records.forget(response_id)
    stored = await stores.responses.forget(response_id)
    if not recorded and not stored:
        raise _missing(request)
    return web.json_response(Deleted(id=response_id).model_dump())


async def _cancel(request: web.Request, record: Record) -> None:
    broker = request.app[GATEWAY].broker
    await JobStore(broker.redis, broker.blocking, record.origin.model).cancel(record.origin.job)


def _state(record: Record) -> dict[str, Any]:
    """The response so far."""
    if record.newest.last:
        response: dict[str, Any] = unframed(record.newest.frame)["response"]
        return response
    status = "in_progress" if record.newest.number >= _QUEUED else "queued"
    return {**unframed(record.first.frame)["response"], "status": status}


def _stores(request: web.Request) -> Stores:
    return request.app[GATEWAY].stores.of(request[CALLER])


def _missing(request: web.Request) -> ApiError:
    message = f"Response with id '{request.match_info['id'][:100]}' not found."
    return ApiError(404, message, code="response_not_found", param="response_id")
