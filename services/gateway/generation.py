"""Submits jobs, follows their logs and gives typed events. A job that its reader leaves is cancelled.

Dialects sit on top; nothing here knows HTTP or JSON.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.gateway.calls import Calls
from services.gateway.errors import INTERNAL, REDIS_DOWN, SERVER, ApiError, too_many, unavailable
from services.gateway.parts import Part, Thought, merged
from services.gateway.preparation import Prepared, Reading
from services.gateway.stats import DraftStatistics
from services.gateway.text import TextStream
from services.gateway.turns import Turn
from shared.broker import Broker
from shared.follow import LogFollower, LogLost
from shared.jobs import JobStore
from shared.messages import Chunk, Finish, Job, TokenLogprob
from shared.scripts import Outcome

logger = structlog.get_logger()

_CANCEL_S: Final = 1.0  # a job that nobody cancels ends by itself; a leaving client must not be waited for
_GRACE_S: Final = 5.0  # the verifier ends a request at its deadline; this is for when there is none any more
_BACKLOG: Final = 256  # commits that may wait for a slow client before its log is read no further


@dataclass(frozen=True, slots=True)
class Piece:
    """A committed token with the text that it made certain, its drafter ("" if none) and its log-probability."""

    token: int
    text: str
    source: str
    logprob: TokenLogprob | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What one commit added to a choice, as tokens with their text and as the parts that became certain.

    `tail` is text that was held back and belongs to earlier tokens.
    """

    choice: int
    pieces: tuple[Piece, ...]
    parts: tuple[Part, ...]
    tail: str = ""

    @property
    def text(self) -> str:
        """The raw text, marks of thinking and calls included."""
        return "".join(piece.text for piece in self.pieces) + self.tail


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice ended: "stop", "length" or "tool_calls", the stop string if one matched, and what it took.

    `call` is the id of its first tool call and `turn` what to keep of it, where it made calls and all are complete.
    `reasoning` of the tokens are thinking, the marks before it included.
    """

    choice: int
    reason: str
    stop: str | None
    tokens: int
    cached: int
    statistics: DraftStatistics
    call: str = ""
    turn: Turn | None = None
    reasoning: int = 0


Event = Delta | Finished


def _failure(chunk: Chunk) -> ApiError:
    if chunk.finish is Finish.DEADLINE:
        return _deadline()
    if chunk.finish is Finish.CANCELLED:
        return ApiError(499, "The request was cancelled.", kind=SERVER, code="request_cancelled")
    return ApiError(500, chunk.detail or "The verifier failed on this request.", kind=SERVER, code="generation_failed")


def _deadline() -> ApiError:
    return ApiError(504, "The request's deadline passed.", kind=SERVER, code="deadline_exceeded")


class Choice:
    """One choice's way from commits to events. Pure; its text does not depend on how tokens were split into commits.

    Tokens count up to and including the one that completes a stop string. The token that ends an answer by itself is
    never committed, so it does not count.
    """

    def __init__(self, index: int, reading: Reading) -> None:
        self._index = index
        self._reading = reading
        self._text = TextStream(reading.piece, reading.stops)
        self._parser = reading.parser()
        self._output: list[int] = []
        self._calls = Calls()
        self._silent = 0  # tokens since the last part
        self._reasoning = 0
        self._statistics = DraftStatistics()
        self._cached: int | None = None
        self.ended = False

    def take(self, chunk: Chunk) -> list[Event | ApiError]:
        """The events of the next commit; after a stop string, a finish or a failure the choice has `ended`."""
        if self._cached is None:
            self._cached = chunk.cached
        self._statistics.add(chunk)
        pieces: list[Piece] = []
        for position, token in enumerate(chunk.tokens):
            text = self._text.push(token)
            source = chunk.sources[position] if position < len(chunk.sources) else ""
            logprob = chunk.logprobs[position] if position < len(chunk.logprobs) else None
            pieces.append(Piece(token, text, source, logprob))
            if self._text.stopped is not None:
                break
        self._output += [piece.token for piece in pieces]
        answered = chunk.finish in (Finish.STOP, Finish.LENGTH)
        tail = self._text.finish() if answered and self._text.stopped is None else ""
        if tail and pieces:
            last = pieces[-1]
            pieces[-1], tail = Piece(last.token, last.text + tail, last.source, last.logprob), ""
        stop = self._text.stopped
        parts = self._parse(pieces, tail, stop is not None or answered)
        events: list[Event | ApiError] = []
        if pieces or parts or tail:
            events.append(Delta(self._index, tuple(pieces), parts, tail))
        self.ended = stop is not None or chunk.finish is not Finish.NONE
        if stop is not None or answered:
            events.append(self._finish(chunk.finish, stop))
        elif self.ended:
            events.append(_failure(chunk))
        return events

    def _parse(self, pieces: Sequence[Piece], tail: str, last: bool) -> tuple[Part, ...]:
        parts: list[Part] = []
        # Token by token, so that each counts as thinking or not however they were split into commits.
        for piece in pieces:
            self._silent += 1
            parts += self._count(self._parser.push(piece.text))
        if tail:
            parts += self._count(self._parser.push(tail))
        if last:
            parts += self._count(self._parser.finish())
        return merged(parts)

    def _count(self, parts: list[Part]) -> list[Part]:
        for part in parts:
            self._calls.take(part)
        if parts:
            self._reasoning += self._silent if isinstance(parts[-1], Thought) else 0
            self._silent = 0
        return parts

    def _finish(self, finish: Finish, stop: str | None) -> Finished:
        reason = "length" if stop is None and finish is Finish.LENGTH else "stop"
        complete = self._calls.complete
        return Finished(
            self._index,
            "tool_calls" if self._calls.made and reason == "stop" else reason,
            stop,
            len(self._output),
            self._cached or 0,
            self._statistics,
            self._calls.first if complete else "",
            self._calls.turn(self._output, self._reading) if complete else None,
            self._reasoning,
        )


class Answer:
    """The events of all choices of one request, as they come."""

    def __init__(self, choices: int) -> None:
        self._queue: asyncio.Queue[Event | ApiError] = asyncio.Queue(_BACKLOG)
        self._failure: ApiError | None = None
        self.open = choices

    async def read(self, timeout_s: float | None = None) -> list[Event]:
        """Every event that is there, waiting up to `timeout_s` for one. Raises the `ApiError` that ended a choice."""
        if self._failure is not None:
            raise self._failure
        try:
            async with asyncio.timeout(timeout_s):
                items = [await self._queue.get()]
        except TimeoutError:
            return []
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        events: list[Event] = []
        for item in items:
            if isinstance(item, ApiError):
                self._failure = item
                if events:
                    return events
                raise item
            events.append(item)
            self.open -= isinstance(item, Finished)
        return events

    async def put(self, item: Event | ApiError) -> None:
        """Wait for room, then hand the item over."""
        await self._queue.put(item)


class Generator:
    """Runs prepared requests on one Redis; at most `limit` jobs per model are live at once."""

    def __init__(self, broker: Broker, follower: LogFollower, limit: int) -> None:
        self._broker = broker
        self._follower = follower
        self._limit = limit

    @asynccontextmanager
    async def run(self, prepared: Prepared) -> AsyncIterator[Answer]:
        """Submit the jobs and read their answers; on leaving, those that have not ended are cancelled.

        Raises a 429 or 503 `ApiError` before anything is yielded if they are not admitted.
        """
        store = JobStore(self._broker.redis, self._broker.blocking, prepared.model.name)
        await self._submit(store, prepared.jobs)
        answer = Answer(len(prepared.jobs))
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._pump(store, job, Choice(index, prepared.reading), answer), name=job.request_id)
                for index, job in enumerate(prepared.jobs)
            ]
            try:
                yield answer
            except Exception as error:
                failure = error  # raised below: out here the group would wrap it
            finally:
                for task in tasks:
                    task.cancel()
        if failure is not None:
            raise failure

    async def _submit(self, store: JobStore, jobs: Sequence[Job]) -> None:
        tried: list[Job] = []
        admitted = False
        try:
            for job in jobs:
                tried.append(job)
                if await store.submit(job, self._limit) is Outcome.FULL:
                    raise too_many()
            admitted = True
        except (RedisError, OSError) as error:
            raise unavailable(REDIS_DOWN) from error
        finally:
            if not admitted:
                for job in tried:
                    await _cancel(store, job.request_id)

    async def _pump(self, store: JobStore, job: Job, choice: Choice, answer: Answer) -> None:
        ended = False
        try:
            async with (
                asyncio.timeout(job.timeout_ms / 1000 + _GRACE_S),
                aclosing(self._follower.follow(job.request_id)) as chunks,
            ):
                async for chunk in chunks:
                    ended = chunk.finish is not Finish.NONE
                    for item in choice.take(chunk):
                        await answer.put(item)
                    if choice.ended:
                        return
        except LogLost:
            await answer.put(ApiError(500, "Redis lost this request.", kind=SERVER, code="request_lost"))
        except TimeoutError:
            await answer.put(_deadline())
        except Exception:
            logger.exception("choice_failed", job=job.request_id)
            await answer.put(ApiError(500, INTERNAL, kind=SERVER, code="internal_error"))
        finally:
            if not ended:
                await _cancel(store, job.request_id)


async def _cancel(store: JobStore, request_id: str) -> None:
    with suppress(TimeoutError, RedisError, OSError):
        async with asyncio.timeout(_CANCEL_S):
            # A second cancellation of the handler must not leave the job running.
            await asyncio.shield(store.cancel(request_id))
