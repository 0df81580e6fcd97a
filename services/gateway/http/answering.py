"""Turns a dialect into a route: a refusal before the headers gets its HTTP status, and the jobs of a client that leaves
are cancelled."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.errors import REDIS_DOWN, ApiError, too_fast, unavailable
from services.gateway.generation.choice import Event, Finished
from services.gateway.generation.generator import AnswerEvents
from services.gateway.generation.merged_events import MergedEvents
from services.gateway.generation.preparation import prepare
from services.gateway.generation.usage import UsageTally
from services.gateway.http.account import Account
from services.gateway.http.attempts import HEADER
from services.gateway.http.dialect import Answer, Dialect, Exchange, Identity, whole
from services.gateway.http.encodings import TooLarge, coding, decoded
from services.gateway.http.gateway import ANSWER_ID, CALLER, GATEWAY, REQUEST_ID, Gateway
from services.gateway.http.holdings import Holdings
from services.gateway.http.sse import ClientGone, EventStream
from services.gateway.storage.allowance import Allowance
from services.gateway.storage.stores import Stores
from shared.process.spans import Span, Tracer
from shared.process.tracing import traceparent
from shared.wire.broker import DISCONNECTED

logger = structlog.get_logger()

_WARNING: Final = "x-draftmesh-warning"
_BODY_S: Final = 60.0  # a slow client keeps its partial body in our memory
_MAX_HEADER: Final = 1000  # clients and proxies bound a response's headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedExchange:
    """A request that was admitted, and its coming answer."""

    request: web.Request
    exchange: Exchange
    identity: Identity
    events: AnswerEvents
    usage: UsageTally
    account: Account
    stores: Stores
    headers: Mapping[str, str]
    holdings: Holdings

    @property
    def gateway(self) -> Gateway:
        return self.request.app[GATEWAY]

    def answer(self) -> Answer[Any]:
        """The answer before its first event."""
        return self.exchange.answer(self.identity, self.usage)

    async def read(self, timeout_s: float | None = None) -> Sequence[Event]:
        """Every event that is there, waiting up to `timeout_s` for one. Raises the `ApiError` that ended a choice.

        Kept turns are stored before the client gets the end, because its next turn may come at once.
        """
        events = await self.events.read(timeout_s)
        self.account.saw(events)
        for event in events:
            if isinstance(event, Finished) and event.turn is not None:
                with suppress(RedisError, *DISCONNECTED):
                    await self.stores.turns.keep(event.call, event.turn)
        return events


class Endpoint:
    """The handler of one dialect's POST route."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, whole or streamed. Raises `ApiError` only before headers."""
        gateway = request.app[GATEWAY]
        async with Holdings() as holdings:
            holdings.enter_context(gateway.activity.enter())
            account = holdings.enter_context(_accounted(request, gateway))
            _refuse_resumption(request)
            body = await read_body(request)
            await _charge(gateway.allowance, request[CALLER], len(body))
            exchange = self._dialect.parse(body)
            content = request.path.encode() + b" " + body
            attempt = gateway.attempts.one(request.headers.get(HEADER), request[CALLER], content, request[ANSWER_ID])
            await holdings.enter_async_context(attempt)
            return await self.deliver(await _admit(request, exchange, account, holdings))

    async def deliver(self, admitted: AdmittedExchange) -> web.StreamResponse:
        """Give the client its answer."""
        if not admitted.exchange.streaming:
            return await _whole(admitted)
        stream = EventStream(
            admitted.request,
            self._dialect.content_type,
            headers=admitted.headers,
            heartbeat_s=admitted.gateway.heartbeat_s,
        )
        answer = admitted.answer()
        try:
            await stream.open()
            await stream.send([answer.frame(told) for told in answer.begin()])
            await stream.send(await play(admitted, answer, stream))
        except ClientGone:
            admitted.account.leave()
        finally:
            if stream.stalled:
                admitted.account.stall()
        return stream.response


@contextmanager
def _accounted(request: web.Request, gateway: Gateway) -> Iterator[Account]:
    """The account of a request, closed at its end."""
    account = Account(gateway.metrics, request[REQUEST_ID], request[ANSWER_ID], _span(request, gateway.tracer))
    try:
        yield account
    except ApiError as error:
        account.fail(error)
        raise
    except asyncio.CancelledError:
        account.leave()
        raise
    finally:
        account.close()


async def _admit(request: web.Request, exchange: Exchange, account: Account, holdings: Holdings) -> AdmittedExchange:
    """Everything before the first token. Raises `ApiError`."""
    gateway = request.app[GATEWAY]
    stores = gateway.stores.of(request[CALLER])
    try:
        await exchange.resolve(stores)
        prepared = await prepare(exchange.generation(), gateway.directory, stores, gateway.timeout_ms)
    except DISCONNECTED as error:
        raise unavailable(REDIS_DOWN) from error
    prepared = prepared.traced(account.traceparent)
    account.prepare(prepared)
    headers = _warn([*prepared.warnings, *exchange.warnings], request[REQUEST_ID])
    return AdmittedExchange(
        request=request,
        exchange=exchange,
        identity=Identity(id=request[ANSWER_ID], created=int(time.time()), prepared=prepared),
        events=await holdings.enter_async_context(gateway.generator.run(prepared, request[CALLER])),
        usage=UsageTally(prepared),
        account=account,
        stores=stores,
        headers=headers,
        holdings=holdings,
    )


async def _charge(allowance: Allowance, caller: str, size: int) -> None:
    """Count the request among what its caller may send in a minute. Raises a 429 or 503 `ApiError`."""
    try:
        wait_s = await allowance.spend(caller, size)
    except (RedisError, *DISCONNECTED) as error:
        raise unavailable(REDIS_DOWN) from error
    if wait_s:
        raise too_fast(wait_s)


def _span(request: web.Request, tracer: Tracer) -> Span:
    """Of the whole request, named as OpenTelemetry names those of HTTP servers."""
    route = request.match_info.route.resource
    name = f"{request.method} {route.canonical}" if route else request.method
    return tracer.span(name, traceparent(request.headers.get("traceparent")), serves=True)


def _refuse_resumption(request: web.Request) -> None:
    """Refuse to resume: a POST starts a new answer, and only a GET can continue a background one."""
    if "Last-Event-ID" in request.headers:
        raise ApiError(
            400,
            "A stream cannot be resumed: its generation ended when the client disconnected. Send the request without"
            " Last-Event-ID to start again.",
            code="not_resumable",
        )


async def read_body(request: web.Request) -> bytes:
    """The whole body, decoded; may be read again. Raises a 400, 408, 413 or 415 `ApiError`."""
    applied = coding(request.headers.get("Content-Encoding", ""))
    try:
        async with asyncio.timeout(_BODY_S):
            body = await request.read()
        # In a thread, because it takes tenths of a second for a large body.
        return await asyncio.to_thread(decoded, body, applied, request.client_max_size) if applied else body
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive within {_BODY_S:.0f} seconds.", code="request_timeout") from None
    except web.RequestPayloadError:
        raise ApiError(400, "The body does not match its headers.", code="invalid_body") from None
    except (web.HTTPRequestEntityTooLarge, TooLarge):
        limit = request.client_max_size >> 20
        raise ApiError(413, f"The body is larger than {limit} MiB.", code="request_too_large") from None


def _warn(warnings: Sequence[str], request_id: str) -> dict[str, str]:
    """The header that says which options were ignored; the log only counts them."""
    if not warnings:
        return {}
    logger.warning("request_options_ignored", request_id=request_id, warnings=len(warnings))
    # The log holds no text of the client, and part of each warning is such text.
    line = "; ".join(warnings).encode("ascii", "replace").decode()
    return {_WARNING: "".join(one if one.isprintable() else "?" for one in line)[:_MAX_HEADER]}


async def _whole(admitted: AdmittedExchange) -> web.Response:
    merged = MergedEvents(len(admitted.identity.prepared.jobs))
    while admitted.events.open:
        for event in await admitted.read():
            admitted.usage.saw(event)
            merged.take(event)
    body = whole(admitted.answer(), merged.events())
    await admitted.exchange.keep(admitted.stores)
    return web.json_response(body, headers=admitted.headers)


class FrameSink(Protocol):
    """Where frames go."""

    async def send(self, frames: Sequence[bytes]) -> None: ...
    def quiet_s(self) -> float:
        """Seconds until the silence is too long; 0: it is now."""


async def play(admitted: AdmittedExchange, answer: Answer[Any], sink: FrameSink) -> list[bytes]:
    """Send an answer's frames, and return the last ones: those of its end, or of an error."""
    try:
        while admitted.events.open:
            frames: list[bytes] = []
            for event in await admitted.read(sink.quiet_s()):
                admitted.usage.saw(event)
                frames += [answer.frame(told) for told in answer.take(event)]
            await sink.send(frames if frames or sink.quiet_s() else [answer.ping()])
        last = [answer.frame(told) for told in answer.end()]
        await admitted.exchange.keep(admitted.stores)
    except ApiError as error:
        admitted.account.fail(error)
        last = [answer.fail(error)]
    return last
