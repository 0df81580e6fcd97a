"""`Idempotency-Key`: serves one attempt at a request at a time.

Otherwise a client that lost its connection and tries again would have two answers generated at once. The gateway
refuses an attempt while an earlier one runs (409, try again), and a key that another running request uses (422), as the
IETF's draft says (draft-ietf-httpapi-idempotency-key-header). It stores no answers, because they have no effects: after
the end of one attempt, it serves the next.
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
# Renewed with every heartbeat; the key of a gateway that died blocks other attempts for this long.
TTL_MS: Final = 10_000

# KEYS: attempt. ARGV: who holds it, TTL in ms. Returns "" if the given holder has it now, else the present holder.
_HOLD: Final = Script("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''
""")
_RELEASE: Final = Script("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end")


class Attempts:
    """The attempts that this gateway serves. Call `renew` at least every ten seconds."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._held: dict[str, str] = {}  # keys with what stands there

    @asynccontextmanager
    async def one(self, key: str | None, caller: str, content: bytes, request_id: str) -> AsyncIterator[None]:
        """Hold the caller's key while a request with this content runs; does nothing without a key.

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
