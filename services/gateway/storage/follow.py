"""Follows many streams with one blocking read, so that a followed stream needs no connection of its own.

Every reader of a request gets each committed token once and in order, from the offset it asked for, and the terminal
chunk last. If Redis loses the log or an older copy of it returns, the reader gets `LogLost` instead of repeated tokens.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from redis.exceptions import RedisError, ResponseError

from shared.process.lifecycle import Loops
from shared.wire import codec, keys
from shared.wire.broker import BLOCK_MS, DISCONNECTED, Reconnect
from shared.wire.commands import Entries, Fields, Pipeline, Redis
from shared.wire.messages import Chunk
from shared.wire.reading import parse_entry

BACKLOG: Final = 256  # chunks that may wait for a slow reader; then its log is read no further
_WAKE_TTL_MS: Final = 60_000


class LogLost(RuntimeError):
    """The log vanished, or continued at another offset than the one expected."""


class Followed(Protocol):
    """A followed stream in Redis; the follower's task makes all calls."""

    key: bytes
    cursor: bytes  # the id of the last entry that was delivered

    @property
    def full(self) -> bool:
        """Whether it accepts no more until `LogFollower.resume`."""

    def deliver(self, entries: Entries) -> None:
        """Take the next entries, at least one."""

    def lose(self, why: str) -> None:
        """Note that the stream is lost."""

    def inquire(self, pipeline: Pipeline) -> None:
        """Add one command whose reply says whether the stream may still grow."""

    def hear(self, reply: object, read: bool) -> None:
        """Take the reply to `inquire`; `read`: since the reply before, the stream was read to its end."""


class Feed:
    """One request's log as it comes; the follower's task calls `wake` whenever there is more to take."""

    def __init__(
        self, request_id: str, offset: int, wake: Callable[[], None], resume: Callable[["Feed"], None]
    ) -> None:
        self.key = keys.log(request_id).encode()
        self._job = keys.job(request_id)
        # Entries end at offset+1 or later, or are the terminal chunk at `<offset>-2`.
        self.cursor = f"{offset}-1".encode()
        self._offset = offset
        self._wake = wake
        self._resume = resume
        self._chunks: list[Chunk] = []
        self._lost: LogLost | None = None
        self._ended_at: bytes | None = None  # the cursor when the job was first seen to have ended

    @property
    def full(self) -> bool:
        return len(self._chunks) >= BACKLOG

    def take(self) -> list[Chunk]:
        """Every chunk that has come since the last call. Raises `LogLost` if none came and none will."""
        if self._lost is not None and not self._chunks:
            raise self._lost
        if self.full:
            self._resume(self)
        chunks, self._chunks = self._chunks, []
        return chunks

    def deliver(self, entries: Entries) -> None:
        """Add log entries, at least one; ignores them after a loss."""
        self.cursor = entries[-1][0]
        for entry_id, fields in entries:
            if self._lost is None:
                self._add(entry_id, fields)
        self._wake()

    def _add(self, entry_id: bytes, fields: Fields) -> None:
        try:
            base, chunk = parse_entry(entry_id, fields)
        except codec.CodecError as error:
            return self.lose(f"undecodable log entry: {error}")
        if base != self._offset:
            return self.lose(f"expected offset {self._offset}, the log continues at {base}")
        self._offset += len(chunk.tokens)
        self._chunks.append(chunk)
        return None

    def lose(self, why: str) -> None:
        """Note that the stream is lost."""
        self._lost = self._lost or LogLost(why)
        self._wake()

    def inquire(self, pipeline: Pipeline) -> None:
        """Add one command whose reply says whether the log may still grow."""
        pipeline.hget(self._job, "state")

    def hear(self, reply: object, read: bool) -> None:
        """Lose a log whose job is gone, or has ended without a last chunk to be read."""
        if reply is None or isinstance(reply, RedisError):
            self.lose("the request is gone from Redis")
        elif reply == b"running" or self.full:
            self._ended_at = None
        elif self._ended_at != self.cursor:
            self._ended_at = self.cursor
        elif read:
            self.lose("the request has ended, and its last chunk is gone from Redis")


class LogFollower:
    """One per gateway. `run` must be running for feeds to get anything."""

    def __init__(self, redis: Redis, blocking: Redis, instance: str) -> None:
        self._redis = redis
        self._blocking = blocking
        self._wake_key = keys.wake(instance)
        # Bytes, as Redis wants and gives them: each read names every log.
        self._feeds: dict[bytes, Followed] = {}
        self._cursors: dict[bytes, bytes] = {}  # of the feeds that accept more
        self._woken = {self._wake_key.encode(): b"0-0"}
        self._changed = asyncio.Event()
        self._joined = asyncio.Event()
        self._silent_since = 0.0

    def join(self, request_id: str, wake: Callable[[], None], offset: int = 0) -> Feed:
        """Follow a request from token `offset` on, until `leave`. One reader per request."""
        feed = Feed(request_id, offset, wake, self.resume)
        self.add(feed)
        return feed

    def add(self, feed: Followed) -> None:
        """Follow a stream from its cursor on, until `leave`. One per stream."""
        if not self._feeds:
            self._silent_since = asyncio.get_running_loop().time()
        self._feeds[feed.key] = feed
        self.resume(feed)

    def silence(self) -> float:
        """Seconds since the last entry of any request, or since the first followed request joined; else 0."""
        return asyncio.get_running_loop().time() - self._silent_since if self._feeds else 0.0

    def leave(self, feed: Followed) -> None:
        """Stop following it."""
        self._feeds.pop(feed.key, None)
        self._cursors.pop(feed.key, None)

    def resume(self, feed: Followed) -> None:
        """Continue a feed that was full."""
        if feed.key in self._feeds:
            self._cursors[feed.key] = feed.cursor
            self._joined.set()
            self._changed.set()

    async def run(self) -> None:
        """Read for ever; survives Redis going away and coming back."""
        async with Loops() as loops:
            loops.start(self._read, name="log reader")
            loops.start(self._interrupt, name="log reader's wake-up")

    async def _read(self) -> None:
        reconnect = Reconnect("log follower")
        clock = asyncio.get_running_loop().time
        checked = clock()
        while True:
            if not self._feeds:
                self._joined.clear()
                await self._joined.wait()
            try:
                reply = await self._blocking.xread(self._cursors | self._woken, count=BACKLOG, block=BLOCK_MS)
                reconnect.succeeded()
            except DISCONNECTED as error:
                await reconnect.failed(error)
                await self._check_all()
                continue
            except ResponseError as error:
                if str(error).startswith("WRONGTYPE"):
                    await self._lose_what_is_no_log()
                elif not str(error).startswith("UNBLOCKED"):
                    raise
                await self._check_all()
                continue
            for key, entries in reply or []:
                self._deliver(key, entries)
            if clock() - checked >= BLOCK_MS / 1000:
                await self._check_all(read=True)
                checked = clock()

    def _deliver(self, key: bytes, entries: Entries) -> None:
        if key in self._woken:
            self._woken[key] = entries[-1][0]
            return
        self._silent_since = asyncio.get_running_loop().time()
        feed = self._feeds.get(key)
        if feed is None:
            return
        feed.deliver(entries)
        if feed.full:
            self._cursors.pop(key, None)  # what a slow reader has not taken stays in Redis
        else:
            self._cursors[key] = feed.cursor

    async def _check_all(self, read: bool = False) -> None:
        """Find streams that never grow again, now and then and after an outage. `read`: see `Followed.hear`."""
        watched = list(self._feeds.values())
        if not watched:
            return
        try:
            pipeline = self._redis.pipeline(transaction=False)
            for feed in watched:
                feed.inquire(pipeline)
            replies = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError):
            return
        for feed, reply in zip(watched, replies, strict=True):
            if not isinstance(reply, DISCONNECTED):
                feed.hear(reply, read)

    async def _lose_what_is_no_log(self) -> None:
        """Lose a key that is not a stream, because it would block the reading of all others."""
        for feed in list(self._feeds.values()):
            try:
                await self._redis.xread({feed.key: feed.cursor}, count=1)
            except DISCONNECTED:
                return
            except ResponseError:
                self._cursors.pop(feed.key, None)
                feed.lose("the log key is not a stream")

    async def _interrupt(self) -> None:
        """End the read under way if it lacks a stream that it should read."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                pipeline = self._redis.pipeline(transaction=True)  # or the key might be left without its TTL
                pipeline.xadd(self._wake_key, {"w": b""}, maxlen=1)
                pipeline.pexpire(self._wake_key, _WAKE_TTL_MS)
                await pipeline.execute()
            except DISCONNECTED:
                pass  # the read ends within BLOCK_MS and sees the new log then
