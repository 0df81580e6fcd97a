"""The error that a client gets: a status, a fixed sentence, and the codes that clients check.

Dialects give it their own shape. Imports no HTTP library.
"""

import random
from dataclasses import KW_ONLY, dataclass
from typing import Final

from shared.fleet.model_names import LATEST
from shared.fleet.registry import LastServed

# Clients that were refused together must not retry together.
RETRY_AFTER_S: Final = (1.0, 3.0)
_FULL_RETRY_S: Final = (10.0, 30.0)  # memory frees itself more slowly than places do

INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"
NOT_SERVED: Final = "model_not_served"
_SHOWN: Final = 200  # characters shown of a name that a client sent


@dataclass(eq=False)
class ApiError(Exception):
    """A request that cannot be served; `param` names the field at fault, `code` is for programs."""

    status: int
    message: str
    _: KW_ONLY
    kind: str = INVALID
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, object]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str = "service_unavailable") -> ApiError:
    """A 503 that asks the client to try again."""
    return ApiError(503, message, kind=SERVER, code=code, retry_after_s=random.uniform(*RETRY_AFTER_S))


def unknown_model(name: str, nearest: str | None, served: str) -> ApiError:
    """A 404 that lists the `served` names, and suggests the nearest one."""
    hint = f" Did you mean '{nearest}'?" if nearest else ""
    return ApiError(
        404,
        f"The model '{name[:_SHOWN]}' does not exist.{hint} Served: {served}.",
        code="model_not_found",
        param="model",
    )


def not_served(name: str, last: LastServed, served: str) -> ApiError:
    """A 503: the last verifier of the model has left."""
    meant = "" if last.model in (name, name.removesuffix(LATEST)) else f" (it meant '{last.model}')"
    return unavailable(
        f"The model '{name[:_SHOWN]}'{meant} is not served now: its last verifier was seen {ago(last.ago_s)} ago."
        f" {_instead(served)}",
        NOT_SERVED,
    )


def deserted(model: str, grace_s: float, served: str) -> ApiError:
    """A 503: the request waited `grace_s` for a verifier after the last one left."""
    return unavailable(
        f"The model '{model}' is not served any more: its last verifier left, and none came within {ago(grace_s)}."
        f" {_instead(served)}",
        NOT_SERVED,
    )


def ago(seconds: float) -> str:
    """A span of time for people: the largest unit of which there are at least two."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"


def _instead(served: str) -> str:
    return f"Served instead: {served}." if served else "No other model is served."


def queue_full() -> ApiError:
    """A 503: the queue is full for every caller."""
    return unavailable("Too many requests are running or waiting for this model; try again shortly.", "queue_full")


def draining() -> ApiError:
    """A 503: this gateway is shutting down. Behind a load balancer, the next try reaches another one."""
    return unavailable("This gateway is shutting down; try again shortly.", "draining")


def too_many() -> ApiError:
    """A 429: the caller already has its share of running and waiting requests."""
    return ApiError(
        429,
        "Too many requests of this API key are running or waiting; try again when some have ended.",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after_s=random.uniform(*RETRY_AFTER_S),
    )


def too_fast(wait_s: float) -> ApiError:
    """A 429: the caller sent more in a minute than it may."""
    return ApiError(
        429,
        f"This API key has sent as much as it may in a minute; try again in {ago(max(1.0, wait_s))}.",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after_s=wait_s,
    )


def redis_full() -> ApiError:
    """A 503: Redis has no room for another request."""
    return ApiError(
        503,
        "Redis, which holds the requests, is nearly full; try again when some have ended.",
        kind=SERVER,
        code="redis_full",
        retry_after_s=random.uniform(*_FULL_RETRY_S),
    )


REDIS_DOWN: Final = "Redis does not answer; try again shortly."
INTERNAL: Final = "The gateway failed on this request; its log says why."
