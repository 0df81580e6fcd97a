"""Submits jobs, reads their logs and gives typed events.

Cancels a job when its reader leaves. Dialects use it; it knows neither HTTP nor JSON.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace
from redis.exceptions import RedisError

from services.gateway.errors import (
    INTERNAL,
    REDIS_DOWN,
    SERVER,
    ApiError,
    draining,
    queue_full,
    redis_full,
    too_many,
    unavailable,
)
from services.gateway.generation.cancelling import Cancellations
from services.gateway.generation.choice import Choice, Event, Finished, deadline_passed
from services.gateway.generation.limits import Limits
from services.gateway.generation.preparation import Prepared
from services.gateway.storage.follow import Feed, LogFollower, LogLost
from services.gateway.storage.headroom import Headroom
from shared.wire.broker import Broker
from shared.wire.jobs import Admission, JobStore
from shared.wire.messages import Chunk, Finish, Job
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

_GRACE_S: Final = 5.0  # the verifier ends a request at its deadline; this is for a request whose verifier is gone


class _Running:
    """A choice with its job and the job's log; `silent`: no token of it may be shown."""

    def __init__(self, job: Job, choice: Choice, feed: Feed, silent: bool) -> None:
        self.job = job
        self._silent = silent
        self.choice = choice
        self.feed = feed
        self.over = False  # whether the job has ended or was cancelled

    def take(self) -> list[Event | ApiError]:
        """The events of its commits since the last call."""
        items: list[Event | ApiError] = []
        try:
            while not self.choice.ended and (chunks := self.feed.take()):
                for chunk in chunks:
                    self.over = chunk.finish is not Finish.NONE
                    items += self.choice.take(_silenced(chunk) if self._silent else chunk)
                    if self.choice.ended:
                        break
        except LogLost:
            items.append(ApiError(500, "Redis lost this request.", kind=SERVER, code="request_lost"))
        except Exception:
            logger.exception("choice_failed", job=self.job.request_id)
            items.append(ApiError(500, INTERNAL, kind=SERVER, code="internal_error"))
        return items


def _silenced(chunk: Chunk) -> Chunk:
    """The commit as if its tokens were beyond the limit."""
    answered = chunk.finish in (Finish.STOP, Finish.LENGTH)
    return Chunk(
        tokens=(), finish=Finish.LENGTH if answered else chunk.finish, cached=chunk.cached, detail=chunk.detail
    )


class AnswerEvents:
    """The events of all choices of one request, as they come. `close` it at the end."""

    def __init__(self, cancellations: Cancellations, follower: LogFollower, prepared: Prepared) -> None:
        self._cancellations = cancellations
        self._follower = follower
        self._stirred: dict[int, None] = {}  # choices with new commits, in order of arrival
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ApiError | None = None
        self.model = prepared.model.name
        self._running = [
            _Running(job, Choice(index, prepared.reading), self._follow(job, index), prepared.silent)
            for index, job in enumerate(prepared.jobs)
        ]
        self.open = len(self._running)
        self._loop = asyncio.get_running_loop()
        limit_s = max(job.timeout_ms for job in prepared.jobs) / 1000 + _GRACE_S
        self._deadline = self._loop.call_later(limit_s, self._expire)

    async def read(self, timeout_s: float | None = None) -> list[Event]:
        """Every event that is there, waiting up to `timeout_s` for one. Raises the `ApiError` that ended a choice."""
        if not self._stirred and self._failure is None:
            await self._wait(timeout_s)
        events: list[Event] = []
        while self._stirred and self._failure is None:
            index = next(iter(self._stirred))
            del self._stirred[index]
            one = self._running[index]
            self._sort(one.take(), events)
            if one.choice.ended and not one.over:  # by a stop string
                one.over = True
                self._cancellations.begin([one.job])
        if self._failure is not None and not events:
            raise self._failure
        return events

    def fail(self, error: ApiError) -> None:
        """End all choices with this error, unless they have ended."""
        self._failure = self._failure or error
        self._wake()

    async def close(self) -> None:
        """Stop reading and cancel what has not ended."""
        self._deadline.cancel()
        for one in self._running:
            self._follower.leave(one.feed)
        await self._cancellations.finish([one.job for one in self._running if not one.over])

    def _follow(self, job: Job, index: int) -> Feed:
        return self._follower.join(job.request_id, partial(self._stir, index))

    def _sort(self, items: Sequence[Event | ApiError], events: list[Event]) -> None:
        for item in items:
            if isinstance(item, ApiError):
                self._failure = item
                return
            events.append(item)
            self.open -= isinstance(item, Finished)

    async def _wait(self, timeout_s: float | None) -> None:
        waiter = self._waiter = self._loop.create_future()
        # asyncio.timeout would cost more than the rest of a commit's work here.
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _stir(self, index: int) -> None:
        self._stirred[index] = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _expire(self) -> None:
        self.fail(deadline_passed())


class Generator:
    """Runs prepared requests on one Redis, as many at once as the limits allow.

    They are read for as long as the card of `instance`, this gateway, is renewed.
    """

    def __init__(self, broker: Broker, follower: LogFollower, instance: str, limits: Limits) -> None:
        self._broker = broker
        self._instance = instance
        self._follower = follower
        self._limits = limits
        self._cancellations = Cancellations(broker)
        self._headroom = Headroom(broker.redis)
        self._answers: set[AnswerEvents] = set()
        self._ended = False

    def end(self) -> None:
        """End every answer with the error of a gateway that shuts down, and refuse new ones."""
        self._ended = True
        for answer in self._answers:
            answer.fail(draining())

    def live(self) -> Counter[str]:
        """How many requests of each model are being answered, waiting ones included."""
        return Counter(answer.model for answer in self._answers)

    def desert(self, model: str, error: ApiError) -> None:
        """End every answer of that model with the error."""
        for answer in self._answers:
            if answer.model == model:
                answer.fail(error)

    @asynccontextmanager
    async def run(self, prepared: Prepared, caller: str = "") -> AsyncIterator[AnswerEvents]:
        """Submit the jobs of `caller` and read their answers; on leaving, those that have not ended are cancelled.

        Raises a 429 or 503 `ApiError` before anything is yielded if they are not admitted.
        """
        if self._ended:
            raise draining()
        store = JobStore(self._broker.redis, self._broker.blocking, prepared.model.name)
        admission = self._limits.admission(prepared.model, caller)
        await self._submit(store, [replace(job, caller=admission.caller) for job in prepared.jobs], admission)
        answer = AnswerEvents(self._cancellations, self._follower, prepared)
        self._answers.add(answer)
        try:
            yield answer
        finally:
            self._answers.discard(answer)
            await answer.close()

    async def _submit(self, store: JobStore, jobs: Sequence[Job], admission: Admission) -> None:
        tried: list[Job] = []
        admitted = False
        try:
            if not await self._headroom.left():
                raise redis_full()
            for job in jobs:
                tried.append(job)
                outcome = await store.submit(job, self._limits.requests, self._instance, admission)
                if outcome is ScriptOutcome.FULL:
                    raise queue_full()
                if outcome is ScriptOutcome.OVER:
                    raise too_many()
            admitted = True
        except (RedisError, OSError) as error:
            raise unavailable(REDIS_DOWN) from error
        finally:
            if not admitted:
                await self._cancellations.finish(tried)
