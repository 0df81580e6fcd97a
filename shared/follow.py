"""Follows many output logs with one blocking read, so that a stream costs a queue and not a connection.

Every follower of a request sees each committed token once and in order, from the offset it asked for, and the
terminal chunk last. If Redis loses the log or goes back in time, it gets `LogLost` instead of repeated tokens.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from redis.exceptions import RedisError, ResponseError

from shared import codec, keys
from shared.broker import BLOCK_MS, DISCONNECTED, Reconnect
from shared.commands import Redis
from shared.jobs import parse_entry
from shared.messages import Chunk, Finish

_WAKE_TTL_MS = 60_000


class LogLost(RuntimeError):
    """The log vanished, or continued at another offset than the one expected."""


class LogFollower:
    """One per gateway. `run` must be running for `follow` to yield."""

    def __init__(self, redis: Redis, blocking: Redis, instance: str) -> None:
        self._redis = redis
        self._blocking = blocking
        self._wake_key = keys.wake(instance)
        self._wake_cursor = "0-0"
        self._queues: dict[str, asyncio.Queue[tuple[int, Chunk] | LogLost]] = {}
        self._cursors: dict[str, str] = {}
        self._joined = asyncio.Event()

    async def follow(self, request_id: str, offset: int = 0) -> AsyncGenerator[Chunk, None]:
        """The chunks of a request from token `offset` on; ends after the terminal chunk. Raises `LogLost`."""
        queue: asyncio.Queue[tuple[int, Chunk] | LogLost] = asyncio.Queue()
        key = keys.log(request_id)
        self._queues[key] = queue
        # Entries end at offset+1 or later, or are the terminal chunk at `<offset>-2`.
        self._cursors[key] = f"{offset}-1"
        self._joined.set()
        try:
            await self._wake()
            while True:
                item = await queue.get()
                if isinstance(item, LogLost):
                    raise item
                base, chunk = item
                if base != offset:
                    raise LogLost(f"expected offset {offset}, the log continues at {base}")
                offset += len(chunk.tokens)
                yield chunk
                if chunk.finish is not Finish.NONE:
                    return
        finally:
            self._queues.pop(key, None)
            self._cursors.pop(key, None)

    async def run(self) -> None:
        """Read for ever; survives Redis going away and coming back."""
        reconnect = Reconnect("log follower")
        checked = time.monotonic()
        while True:
            if not self._queues:
                self._joined.clear()
                await self._joined.wait()
            try:
                async with asyncio.timeout(BLOCK_MS / 1000 * 2):
                    reply = await self._blocking.xread(
                        {**self._cursors, self._wake_key: self._wake_cursor}, block=BLOCK_MS
                    )
                reconnect.succeeded()
            except ResponseError as error:
                if not str(error).startswith("UNBLOCKED"):
                    raise
                await self._check_all()
                continue
            except DISCONNECTED as error:
                await reconnect.failed(error)
                await self._check_all()
                continue
            for raw_key, entries in reply or []:
                self._deliver(raw_key.decode(), entries)
            if time.monotonic() - checked >= BLOCK_MS / 1000:
                await self._check_all()
                checked = time.monotonic()

    def _deliver(self, key: str, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        if key == self._wake_key:
            self._wake_cursor = entries[-1][0].decode()
            return
        queue = self._queues.get(key)
        if queue is None:
            return
        self._cursors[key] = entries[-1][0].decode()
        for entry_id, fields in entries:
            try:
                queue.put_nowait(parse_entry(entry_id, fields))
            except codec.CodecError as error:
                queue.put_nowait(LogLost(f"undecodable log entry: {error}"))

    async def _check_all(self) -> None:
        """Now and then, and after an outage: a request whose job is gone will never speak again."""
        watched = list(self._queues.items())
        if not watched:
            return
        try:
            pipeline = self._redis.pipeline(transaction=False)
            for key, _ in watched:
                pipeline.exists(key.removesuffix(":log") + ":job")
            present = await pipeline.execute()
        except (RedisError, OSError):
            return
        for (_, queue), exists in zip(watched, present, strict=True):
            if not exists:
                queue.put_nowait(LogLost("the request is gone from Redis"))

    async def _wake(self) -> None:
        try:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.xadd(self._wake_key, {"w": b""}, maxlen=1)
            pipeline.pexpire(self._wake_key, _WAKE_TTL_MS)
            await pipeline.execute()
        except DISCONNECTED:
            pass  # the read that is under way ends within BLOCK_MS and sees the new log then
