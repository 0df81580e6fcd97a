"""Streams a background response from its record: any gateway, from any event on, to any number of readers."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.dialects.responses.answer import failure, numbered, unframed
from services.gateway.http.gateway import CALLER, GATEWAY
from services.gateway.http.sse import PING, ClientGone, EventStream
from services.gateway.storage.record_follower import RecordWatch
from services.gateway.storage.records import RecordedEvent, RecordStore
from shared.wire.broker import DISCONNECTED

_BATCH: Final = 256  # events that are read, and written to a client, at once
_PAUSE_S: Final = 0.5  # between tries while Redis is away
_AWAY_S: Final = 60.0  # for so long


async def follow(
    request: web.Request, response_id: str, first: RecordedEvent, after: int, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """The events after number `after` as they come, up to the last; `first` is the record's first event.

    A record that vanishes ends like a failed response. If Redis stays away, the stream ends without a last event, and
    the client may continue it later.
    """
    gateway = request.app[GATEWAY]
    records = gateway.stores.records.of(request[CALLER])
    stream = EventStream(request, "text/event-stream; charset=utf-8", headers=headers, heartbeat_s=gateway.heartbeat_s)
    key = records.key(response_id)
    try:
        await stream.open()
        with gateway.record_follower.watch(key, after) as watch:
            await _Reader(records, key, first, after).play(stream, watch)
    except ClientGone:
        pass
    return stream.response


class _Reader:
    """One reader's place in a record."""

    def __init__(self, records: RecordStore, key: str, first: RecordedEvent, after: int) -> None:
        self._records = records
        self._key = key
        self._first = first
        self._after = after

    async def play(self, stream: EventStream, watch: RecordWatch) -> None:
        """Send everything up to the end. Raises `ClientGone`."""
        while True:
            lost = watch.lost  # ask this before reading, or a late event would be missed
            entries = await self._read(stream)
            if entries is None:
                return await stream.send([self._unreachable()])
            if entries:
                await stream.send([entry.frame for entry in entries])
                self._after = entries[-1].number
                if entries[-1].last:
                    return None
            elif lost or (not stream.quiet_s() and await self._is_behind()):
                return await stream.send([self._lost()])
            else:
                if not stream.quiet_s():
                    await stream.send([PING])
                await watch.wait(stream.quiet_s())

    async def _is_behind(self) -> bool:
        """Whether the record ended before this place, as can happen after Redis lost events."""
        with suppress(RedisError, *DISCONNECTED):
            newest = await self._records.newest(self._key)
            return newest is not None and newest.last and newest.number <= self._after
        return False

    async def _read(self, stream: EventStream) -> list[RecordedEvent] | None:
        """The events that are there; None if Redis was away for too long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _AWAY_S
        while loop.time() < until:
            try:
                return await self._records.read(self._key, self._after, _BATCH)
            except DISCONNECTED:
                await asyncio.sleep(_PAUSE_S)
            except RedisError:  # the key is not a record
                return []
            if not stream.quiet_s():
                await stream.send([PING])
        return None

    def _lost(self) -> bytes:
        message = "The response is gone: it was deleted, or Redis lost it."
        response = failure(unframed(self._first.frame)["response"], message, [])
        return numbered({"type": "response.failed", "response": response}, self._after + 1, resumable=True)

    def _unreachable(self) -> bytes:
        error = {"type": "error", "code": "service_unavailable", "message": "Redis does not answer.", "param": None}
        return numbered(error, self._after + 1, resumable=False)
