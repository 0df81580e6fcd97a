"""`Idempotency-Key`: of the attempts at one request that a client makes, one at a time is served.

A client that lost sight of its request and tries again would else have it answered twice at once. Refused are an
attempt while an earlier one runs (409, come back), and a key that is used for something else meanwhile (422), as the
IETF's draft of the header has it (draft-ietf-httpapi-idempotency-key-header). An answer has no effects, so none is
kept: after the end of one attempt the next is served anew.
"""

import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from redis.exceptions import RedisError

from services.gateway.errors import REDIS_DOWN, RETRY_AFTER_S, ApiError, invalid, unavailable
from shared.wire import keys
from shared.wire.broker import DISCONNECTED
from shared.wire.commands import Redis
from shared.wire.scripts import Script

HEADER: Final = "Idempotency-Key"
_MAX: Final = 255  # characters
# Renewed with every heartbeat; a gateway that died is in nobody's way for longer.
TTL_MS: Final = 10_000

# KEYS: attempt. ARGV: who holds it, TTL in ms. "" if it is held now by whom it says, else who holds it.
_HOLD: Final = Script("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''
""")
_RELEASE: Final = Script("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end")


class Attempts:
    """Those that this gateway serves. `renew` must be called more often than every ten seconds."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._held: dict[str, str] = {}  # keys with what stands there

    @asynccontextmanager
    async def one(self, key: str | None, caller: str, content: bytes, request_id: str) -> AsyncIterator[None]:
        """Hold the caller's key while a request with this content is served; without a key there is nothing to hold.

        Raises a 400, 409, 422 or 503 `ApiError`.
        """
        if key is None:
            yield
            return
        name = keys.attempt(hashlib.sha256(f"{caller} {_checked(key)}".encode()).hexdigest()[:32])
        digest = hashlib.sha256(content).hexdigest()[:32]
        holder = f"{digest} {request_id}"
        try:
            reply = await _HOLD.run(self._redis, [name], [holder, TTL_MS])
        except (RedisError, *DISCONNECTED) as error:
            raise unavailable(REDIS_DOWN) from error
        if reply:
            raise _refusal(same=reply.decode().partition(" ")[0] == digest)
        self._held[name] = holder
        try:
            yield
        finally:
            del self._held[name]
            with suppress(RedisError, *DISCONNECTED):
                await _RELEASE.run(self._redis, [name], [holder])

    async def renew(self) -> None:
        """Keep what is held. Raises redis-py's errors."""
        for name, holder in list(self._held.items()):
            if name in self._held:  # still, after those before
                await _HOLD.run(self._redis, [name], [holder, TTL_MS])


def _checked(key: str) -> str:
    if not 1 <= len(key) <= _MAX or not (key.isascii() and key.isprintable()):
        raise invalid(None, f"{HEADER}: 1 to {_MAX} printable ASCII characters are allowed.", "invalid_idempotency_key")
    return key


def _refusal(same: bool) -> ApiError:
    if not same:
        return ApiError(
            422, f"This {HEADER} belongs to another request, which still runs.", code="idempotency_mismatch"
        )
    return ApiError(
        409,
        f"The request with this {HEADER} still runs; try again when it has ended.",
        code="idempotency_conflict",
        retry_after_s=random.uniform(*RETRY_AFTER_S),
    )
