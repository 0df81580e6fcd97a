"""The routes beside generation: which models there are, whether this gateway lives and can serve, and its metrics."""

import asyncio
from contextlib import suppress
from typing import Final

import prometheus_client
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.errors import ApiError
from services.gateway.gateway import DOCUMENT, GATEWAY, Gateway
from services.gateway.models import ServedModel
from shared.broker import DISCONNECTED
from shared.messages import VerifierCard

_PROBE_S: Final = 2.0  # orchestrators' probes give up after a few seconds


async def list_models(request: web.Request) -> web.Response:
    """The served models in OpenAI's shape."""
    models = await request.app[GATEWAY].directory.served()
    return web.json_response({"object": "list", "data": [_describe(model) for model in models]})


async def get_model(request: web.Request) -> web.Response:
    """One served model, or a 404 that lists the served ones."""
    models = await request.app[GATEWAY].directory.served()
    asked = request.match_info["id"]
    for model in models:
        if model.name == asked:
            return web.json_response(_describe(model))
    known = ", ".join(model.name for model in models) or "none"
    message = f"The model '{asked[:200]}' does not exist; served: {known}."
    raise ApiError(404, message, code="model_not_found", param="model")


def _describe(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "draftmesh",
        "max_model_len": model.n_ctx,
        "exactness": model.exactness,
    }


async def root(_: web.Request) -> web.Response:
    """A line for people; clients only look at the status."""
    return web.Response(text="draftmesh is running. GET /v1/models lists what it serves.\n")


async def health(_: web.Request) -> web.Response:
    """200: the process lives."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """200 if a request sent now would be served, else 503 with what is missing."""
    missing = await _missing(request.app[GATEWAY])
    if missing:
        return web.json_response({"status": "unavailable", "missing": missing}, status=503)
    return web.json_response({"status": "ready", "missing": []})


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


async def openapi(request: web.Request) -> web.Response:
    """What all routes take and answer."""
    return web.json_response(request.app[DOCUMENT])


async def metrics(request: web.Request) -> web.Response:
    """Prometheus' text format; without Redis the fleet's last known numbers."""
    gateway = request.app[GATEWAY]
    with suppress(RedisError, *DISCONNECTED):
        async with asyncio.timeout(_PROBE_S):
            await gateway.directory.cards()
    return web.Response(body=gateway.metrics.text(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
