"""Wakes the readers of records when there is more to read."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from services.gateway.storage.follow import LogFollower
from services.gateway.storage.records import cursor
from shared.wire.commands import Entries, Pipeline


class _Feed:
    """One record for all its readers here: it only wakes them, because each reads from its own place."""

    full = False

    def __init__(self, key: str, after: int) -> None:
        self.key = key.encode()
        self._record = key
        self.cursor = cursor(after)
        self.readers: set[RecordWatch] = set()
        self.lost = False

    def deliver(self, entries: Entries) -> None:
        self.cursor = entries[-1][0]
        self._wake()

    def lose(self, why: str) -> None:
        self.lost = True
        self._wake()

    def inquire(self, pipeline: Pipeline) -> None:
        pipeline.exists(self._record)

    def hear(self, reply: object, read: bool) -> None:
        if not reply:
            self.lose("the record is gone from Redis")

    def _wake(self) -> None:
        for reader in self.readers:
            reader.stirred.set()


class RecordWatch:
    """One reader's view of a record."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed
        self.stirred = asyncio.Event()

    @property
    def lost(self) -> bool:
        """The record is gone."""
        return self._feed.lost

    async def wait(self, timeout_s: float) -> None:
        """Wait until something came since the last call, the record is gone, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.stirred.wait()
        self.stirred.clear()


class RecordFollower:
    """Wakes the readers of records, all with the follower's one blocking read."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._feeds: dict[str, _Feed] = {}

    @contextmanager
    def watch(self, key: str, after: int) -> Iterator[RecordWatch]:
        """Watch for events of a record after number `after`; may also wake for earlier ones."""
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = _Feed(key, after)
            self._follower.add(feed)
        watch = RecordWatch(feed)
        feed.readers.add(watch)
        try:
            yield watch
        finally:
            feed.readers.discard(watch)
            if not feed.readers:
                del self._feeds[key]
                self._follower.leave(feed)
