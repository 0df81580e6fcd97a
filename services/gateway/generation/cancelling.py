"""Cancels jobs, and retries each cancellation until Redis accepts it.

A job that is not cancelled keeps a verifier's slot until its last token. So cancellations run in tasks of their own:
neither a handler that is cancelled twice nor a slow Redis loses one.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
from redis.exceptions import ResponseError

from shared.wire.broker import DISCONNECTED, Broker
from shared.wire.jobs import JobStore
from shared.wire.messages import Job

logger = structlog.get_logger()

_WAIT_S: Final = 1.0  # how long an ending handler waits; the cancellation itself continues
_TRY_S: Final = 60.0  # a Redis that is away for longer has most likely lost the job
_PAUSE_S: Final = 0.5


class Cancellations:
    """One per gateway; owns the tasks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, jobs: Sequence[Job]) -> set[asyncio.Task[None]]:
        """Cancel these jobs in tasks of their own. Jobs that ended before are left as they are."""
        tasks = {asyncio.create_task(self._cancel(job), name=f"cancel {job.request_id}") for job in jobs}
        self._tasks |= tasks
        for task in tasks:
            task.add_done_callback(self._tasks.discard)
        return tasks

    async def finish(self, jobs: Sequence[Job]) -> None:
        """Cancel these jobs and wait a short time for Redis."""
        if tasks := self.begin(jobs):
            await asyncio.wait(tasks, timeout=_WAIT_S)

    async def _cancel(self, job: Job) -> None:
        store = JobStore(self._broker.redis, self._broker.blocking, job.model)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TRY_S):
                while True:
                    try:
                        await store.cancel(job.request_id)
                    except DISCONNECTED:
                        await asyncio.sleep(_PAUSE_S)
                    except ResponseError as error:  # the key is not a job, so no verifier works on it
                        logger.warning("cancel_failed", job=job.request_id, error=type(error).__name__)
                        return
                    else:
                        return
