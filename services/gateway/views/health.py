"""A gateway's reports about itself: liveness, readiness, metrics and its OpenAPI document."""

import asyncio
from contextlib import suppress
from typing import Final

import prometheus_client
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.errors import ApiError
from services.gateway.http.gateway import DOCUMENT, GATEWAY, Gateway
from services.gateway.monitoring.loop_health import SLOW_S
from shared.wire.broker import DISCONNECTED
from shared.wire.messages import VerifierCard

STALLED_S: Final = 60.0
_PROBE_S: Final = 2.0  # orchestrators' probes give up after a few seconds


async def live(request: web.Request) -> web.Response:
    """200 unless the event loop was blocked for seconds; does not depend on Redis or verifiers."""
    lag_s = request.app[GATEWAY].loop_health.lag
    return _report("slow" if lag_s >= SLOW_S else "ok", lag_s=round(lag_s, 3))


async def progress(request: web.Request) -> web.Response:
    """200 unless requests of this gateway run or wait and nothing was committed for any of them for a minute."""
    gateway = request.app[GATEWAY]
    silence_s = gateway.follower.silence()
    status = "stalled" if silence_s >= STALLED_S else "ok"
    return _report(status, running=gateway.activity.running, silence_s=round(silence_s))


async def ready(request: web.Request) -> web.Response:
    """200 if a request sent now would be served, else 503 with the reason.

    `speechless` has the models that take no messages, and why; their completions work.
    """
    gateway = request.app[GATEWAY]
    missing, speechless = await _missing(gateway), dict[str, str]()
    if not missing:
        missing, speechless = await _voices(gateway)
    return _report("unavailable" if missing else "ready", missing=missing, speechless=speechless)


def _report(status: str, **facts: object) -> web.Response:
    return web.json_response({"status": status, **facts}, status=200 if status in ("ok", "ready") else 503)


async def _missing(gateway: Gateway) -> list[str]:
    missing = ["gateway is draining"] if gateway.activity.draining else []
    try:
        async with asyncio.timeout(_PROBE_S):
            await gateway.broker.redis.ping()
            cards = await gateway.directory.cards()
    except (RedisError, *DISCONNECTED):
        return [*missing, "redis does not answer"]
    verifiers = [card for card in cards if isinstance(card, VerifierCard)]
    if not verifiers:
        missing.append("no verifier is registered")
    elif all(card.draining for card in verifiers):
        missing.append("every verifier is draining")
    return missing


async def _voices(gateway: Gateway) -> tuple[list[str], dict[str, str]]:
    """What is missing if no served model has a vocabulary that can be loaded; and models that take no messages."""
    faults: list[str] = []
    speechless: dict[str, str] = {}
    models = await gateway.directory.served()
    for model in models:
        try:
            async with asyncio.timeout(_PROBE_S):
                # Loading a large vocabulary may take longer than a probe waits, so it goes on behind it.
                lexicon = await asyncio.shield(gateway.directory.lexicon(model.vocabulary))
        except TimeoutError:
            faults.append(f"{model.name}: its vocabulary is being loaded")
        except (RedisError, *DISCONNECTED):
            faults.append("redis does not answer")
        except ApiError as error:
            faults.append(f"{model.name}: {error}")
        else:
            if lexicon.chat_fault:
                speechless[model.name] = lexicon.chat_fault
    return faults if len(faults) == len(models) else [], speechless


async def openapi(request: web.Request) -> web.Response:
    """What all routes take and answer."""
    return web.json_response(request.app[DOCUMENT]())


async def metrics(request: web.Request) -> web.Response:
    """Prometheus' text format; without Redis the fleet's last known numbers."""
    gateway = request.app[GATEWAY]
    with suppress(RedisError, *DISCONNECTED):
        async with asyncio.timeout(_PROBE_S):
            await gateway.directory.cards()
    await gateway.metrics.queue_metrics.look(gateway.broker, gateway.directory.last)
    return web.Response(body=gateway.metrics.text(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
