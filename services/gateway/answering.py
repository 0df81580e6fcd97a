"""Turns a dialect into a route: refusals are real statuses before headers, and a client that leaves ends its jobs."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from services.gateway.account import Account
from services.gateway.dialect import Call, Identity
from services.gateway.errors import REDIS_DOWN, ApiError, unavailable
from services.gateway.gateway import GATEWAY, REQUEST_ID, Gateway
from services.gateway.generation import Answer
from services.gateway.preparation import Prepared, prepare
from services.gateway.sse import ClientGone, EventStream
from shared.broker import DISCONNECTED

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handler of one dialect's POST route."""

    def __init__(self, parse: Callable[[bytes], Call]) -> None:
        """`parse` raises `ApiError` for a body that is not such a call."""
        self._parse = parse

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, whole or streamed. Raises `ApiError` only before headers."""
        gateway = request.app[GATEWAY]
        with gateway.activity.enter():
            account = Account(gateway.metrics, request[REQUEST_ID])
            try:
                return await self._answer(request, gateway, account)
            except ApiError as error:
                account.fail(error)
                raise
            except asyncio.CancelledError:
                account.leave()
                raise
            finally:
                account.close()

    async def _answer(self, request: web.Request, gateway: Gateway, account: Account) -> web.StreamResponse:
        call = self._parse(await _body(request))
        prepared = await _prepare(call, gateway)
        account.prepare(prepared)
        identity = Identity(id=request[REQUEST_ID].removeprefix("req_"), created=int(time.time()), prepared=prepared)
        async with gateway.generator.run(prepared) as answer:
            if not call.streaming:
                return await _whole(call, identity, answer, account)
            stream = EventStream(request, heartbeat_s=gateway.heartbeat_s)
            try:
                await _stream(call, identity, answer, account, stream)
            except ClientGone:
                account.leave()
            return stream.response


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        limit = request.client_max_size >> 20
        raise ApiError(413, f"The body is larger than {limit} MiB.", code="request_too_large") from None


async def _prepare(call: Call, gateway: Gateway) -> Prepared:
    try:
        return await prepare(call.generation(), gateway.directory, gateway.timeout_ms)
    except DISCONNECTED as error:
        raise unavailable(REDIS_DOWN) from error


async def _whole(call: Call, identity: Identity, answer: Answer, account: Account) -> web.Response:
    collector = call.collector(identity)
    while answer.open:
        events = await answer.read()
        account.saw(events)
        collector.take(events)
    return web.json_response(collector.body())


async def _stream(call: Call, identity: Identity, answer: Answer, account: Account, stream: EventStream) -> None:
    framing = call.framing(identity)
    await stream.open()
    await stream.send(framing.begin())
    try:
        while answer.open:
            events = await answer.read(stream.quiet_s())
            account.saw(events)
            await stream.send(framing.frames(events))
        last = framing.end()
    except ApiError as error:
        account.fail(error)
        last = framing.fail(error)
    await stream.send(last)
