"""The HTTP application: every response carries a request id, and every error has its dialect's shape and a fixed
sentence."""

import math
import re
import uuid
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from redis.exceptions import RedisError

from services.gateway.errors import INTERNAL, REDIS_DOWN, SERVER, ApiError, unavailable
from services.gateway.http.error_shapes import shape
from services.gateway.http.gateway import ANSWER_ID, CALLER, DOCUMENT, GATEWAY, REQUEST_ID, Gateway
from services.gateway.http.openapi import document
from services.gateway.http.paths import TidiedPaths, tidy
from services.gateway.table import ROUTES
from shared.wire.broker import DISCONNECTED

logger = structlog.get_logger()

MAX_BODY_BYTES: Final = 32 << 20
_CORS_HEADERS: Final = (
    "authorization",
    "x-api-key",
    "content-type",
    "accept",
    "user-agent",
    "x-requested-with",
    "idempotency-key",
    "last-event-id",
)
_CORS_PREFIXES: Final = ("anthropic-", "openai-", "x-stainless-")
_OPEN: Final = frozenset(path for route in ROUTES if route.open for path in route.paths)  # probes carry no key
_SOUND_ID: Final = re.compile("[A-Za-z0-9_-]{1,64}")  # what is safe to log, to echo and to put into a URL
_EXPOSED: Final = "x-request-id, request-id, x-draftmesh-warning, retry-after, retry-after-ms"
_SHOWN: Final = 200  # characters shown of a path


def build(gateway: Gateway) -> web.Application:
    """The application over its parts; it owns none of them."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_identify, _catch, _preflight, _authenticate])
    app[GATEWAY] = gateway
    app[DOCUMENT] = partial(_document)
    app.on_response_prepare.append(_decorate)
    for route in ROUTES:
        for path in route.paths:
            app.router.add_route(route.method, path, route.handler)
            if route.method == "GET":
                app.router.add_head(path, route.handler)
    app.router.register_resource(TidiedPaths(app.router))
    return app


@cache
def _document() -> dict[str, Any]:
    return document(ROUTES, version("draftmesh"))


@web.middleware
async def _identify(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[ANSWER_ID] = uuid.uuid4().hex
    own = request.headers.get("x-request-id", "")
    request[REQUEST_ID] = own if _SOUND_ID.fullmatch(own) else f"req_{request[ANSWER_ID]}"
    return await handler(request)


@web.middleware
async def _catch(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        failure = error
    except web.HTTPException as error:
        if error.status < 400:
            raise
        failure = _refusal(error, request)
    except (RedisError, *DISCONNECTED):
        failure = unavailable(REDIS_DOWN)
    except Exception:
        logger.exception("request_failed", request_id=request[REQUEST_ID])
        failure = ApiError(500, INTERNAL, kind=SERVER, code="internal_error")
    return _response(failure, request)


def _refusal(error: web.HTTPException, request: web.Request) -> ApiError:
    """aiohttp's refusal in our words. The path tells a client which part of its base address is wrong."""
    path = request.path[:_SHOWN]
    match error:
        case web.HTTPNotFound():
            return ApiError(404, f"There is no '{path}' here.", code="not_found")
        case web.HTTPMethodNotAllowed():
            methods = ", ".join(sorted(error.allowed_methods))
            return ApiError(405, f"'{path}' takes {methods}, not {error.method}.", code="method_not_allowed")
    return ApiError(error.status, error.reason)


def _response(error: ApiError, request: web.Request) -> web.Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        headers["retry-after-ms"] = str(int(error.retry_after_s * 1000))
    status, body = shape(error, tidy(request.path), request[REQUEST_ID])
    return web.json_response(body, status=status, headers=headers)


@web.middleware
async def _preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return await handler(request)
    asked = request.headers.get("Access-Control-Request-Headers", "").lower().split(",")
    names = [name.strip() for name in asked if name.strip().startswith(_CORS_PREFIXES)]
    return web.Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": ", ".join([*_CORS_HEADERS, *names]),
            "Access-Control-Max-Age": "600",
        },
    )


@web.middleware
async def _authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    guard = request.app[GATEWAY].guard
    guard.admit(request.headers)
    if not _is_open(request):
        request[CALLER] = guard.check(request.headers)
    return await handler(request)


def _is_open(request: web.Request) -> bool:
    """Looks at the path too, because a method that an open route does not accept has no route."""
    resource = request.match_info.route.resource
    return request.path in _OPEN or (resource is not None and resource.canonical in _OPEN)


async def _decorate(request: web.Request, response: web.StreamResponse) -> None:
    # aiohttp refuses some requests before any middleware sees them.
    response.headers["x-request-id"] = request.get(REQUEST_ID) or f"req_{uuid.uuid4().hex}"
    response.headers["request-id"] = response.headers["x-request-id"]  # Anthropic's name for it
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Expose-Headers"] = _EXPOSED
