"""Turns a dialect into a route: refusals are real statuses before headers, and a client that leaves ends its jobs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.account import Account
from services.gateway.attempts import HEADER
from services.gateway.dialect import Call, Dialect, Identity
from services.gateway.errors import REDIS_DOWN, ApiError, unavailable
from services.gateway.gateway import ANSWER_ID, CALLER, GATEWAY, REQUEST_ID, Gateway
from services.gateway.generation import Event, Finished
from services.gateway.generator import Answer
from services.gateway.preparation import Prepared, prepare
from services.gateway.sse import ClientGone, EventStream
from services.gateway.stores import Stores
from shared.broker import DISCONNECTED
from shared.tracing import Span, Tracer, traceparent

logger = structlog.get_logger()

_WARNING: Final = "x-draftmesh-warning"
_BODY_S: Final = 60.0  # a client that sends slowly keeps what it has sent in our memory
_MAX_HEADER: Final = 1000  # clients and proxies bound a response's headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handler of one dialect's POST route."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, whole or streamed. Raises `ApiError` only before headers."""
        gateway = request.app[GATEWAY]
        with gateway.activity.enter():
            span = _span(request, gateway.tracer)
            account = Account(gateway.metrics, request[REQUEST_ID], request[ANSWER_ID], span)
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
        _refuse_resumption(request)
        body = await read_body(request)
        call = self._dialect.parse(body)
        content = request.path.encode() + b" " + body
        key = request.headers.get(HEADER)
        async with gateway.attempts.one(key, request[CALLER], content, request[ANSWER_ID]):
            return await self._serve(request, call, gateway, account)

    async def _serve(self, request: web.Request, call: Call, gateway: Gateway, account: Account) -> web.StreamResponse:
        stores = gateway.stores.of(request[CALLER])
        prepared = (await _prepare(call, gateway, stores)).traced(account.traceparent)
        account.prepare(prepared)
        headers = _warn(call.warnings, request[REQUEST_ID])
        identity = Identity(id=request[ANSWER_ID], created=int(time.time()), prepared=prepared)
        async with gateway.generator.run(prepared, request[CALLER]) as answer:
            if not call.streaming:
                return await _whole(call, identity, answer, account, stores, headers)
            stream = EventStream(request, self._dialect.content_type, headers=headers, heartbeat_s=gateway.heartbeat_s)
            try:
                await _stream(call, identity, answer, account, stream, stores)
            except ClientGone:
                account.leave()
            finally:
                if stream.stalled:
                    account.stall()
            return stream.response


def _span(request: web.Request, tracer: Tracer) -> Span:
    """Of the whole request, named as OpenTelemetry names those of HTTP servers."""
    route = request.match_info.route.resource
    name = f"{request.method} {route.canonical}" if route else request.method
    return tracer.span(name, traceparent(request.headers.get("traceparent")), serves=True)


def _refuse_resumption(request: web.Request) -> None:
    """No dialect resumes a stream: frames carry no ids, and a client that leaves ends its jobs."""
    if "Last-Event-ID" in request.headers:
        raise ApiError(
            400,
            "A stream cannot be resumed: what it came from ended when its client left. Send the request without"
            " Last-Event-ID to start anew.",
            code="not_resumable",
        )


async def read_body(request: web.Request) -> bytes:
    """The whole body; may be read again. Raises a 400, 408 or 413 `ApiError`."""
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive within {_BODY_S:.0f} seconds.", code="request_timeout") from None
    except web.RequestPayloadError:
        raise ApiError(400, "The body does not arrive as its headers say.", code="invalid_body") from None
    except web.HTTPRequestEntityTooLarge:
        limit = request.client_max_size >> 20
        raise ApiError(413, f"The body is larger than {limit} MiB.", code="request_too_large") from None


async def _prepare(call: Call, gateway: Gateway, stores: Stores) -> Prepared:
    try:
        await call.resolve(stores)
        return await prepare(call.generation(), gateway.directory, stores, gateway.timeout_ms)
    except DISCONNECTED as error:
        raise unavailable(REDIS_DOWN) from error


def _warn(warnings: Sequence[str], request_id: str) -> dict[str, str]:
    """The header that says what was left out; the log says that something was."""
    if not warnings:
        return {}
    logger.warning("left_out", request_id=request_id, warnings=len(warnings))
    # Part of it is the client's own words, which may be anything, and are none of the log's business.
    line = "; ".join(warnings).encode("ascii", "replace").decode()
    return {_WARNING: "".join(one if one.isprintable() else "?" for one in line)[:_MAX_HEADER]}


async def _whole(
    call: Call, identity: Identity, answer: Answer, account: Account, stores: Stores, headers: Mapping[str, str]
) -> web.Response:
    collector = call.collector(identity)
    while answer.open:
        events = await answer.read()
        account.saw(events)
        collector.take(events)
        await _keep_turns(events, stores)
    body = collector.body()
    await call.keep(stores)
    return web.json_response(body, headers=headers)


async def _stream(
    call: Call, identity: Identity, answer: Answer, account: Account, stream: EventStream, stores: Stores
) -> None:
    framing = call.framing(identity)
    await stream.open()
    await stream.send(framing.begin())
    try:
        while answer.open:
            events = await answer.read(stream.quiet_s())
            account.saw(events)
            await _keep_turns(events, stores)
            frames = framing.frames(events)
            await stream.send(frames if frames or stream.quiet_s() else [framing.ping()])
        last = framing.end()
        await call.keep(stores)
    except ApiError as error:
        account.fail(error)
        last = framing.fail(error)
    await stream.send(last)


async def _keep_turns(events: Sequence[Event], stores: Stores) -> None:
    """Before the client hears of the end: its next turn may come at once."""
    for event in events:
        if isinstance(event, Finished) and event.turn is not None:
            with suppress(RedisError, *DISCONNECTED):
                await stores.turns.keep(event.call, event.turn)
