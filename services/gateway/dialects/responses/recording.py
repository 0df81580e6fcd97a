"""Background answers: recorded event by event, whether or not a client reads them.

A client that leaves cancels nothing. It, or another client with its key, continues to read where it stopped
(https://platform.openai.com/docs/guides/background).
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.dialects.responses.exchange import ResponsesExchange
from services.gateway.dialects.responses.following import follow
from services.gateway.errors import REDIS_DOWN, SERVER, ApiError, unavailable
from services.gateway.http.answering import AdmittedExchange, Endpoint, play
from services.gateway.http.dialect import Answer
from services.gateway.storage.records import AppendOutcome, Origin, RecordedEvent, RecordStore
from shared.wire.broker import DISCONNECTED, Reconnect

logger = structlog.get_logger()

_FULL: Final = "The answer is larger than a background response may be."
_GRACE_S: Final = 10.0  # after a request's deadline, to record that it passed


class ResponsesEndpoint(Endpoint):
    """The handler of POST /v1/responses."""

    async def deliver(self, admitted: AdmittedExchange) -> web.StreamResponse:
        """Give the client its answer, or a place to read it."""
        exchange = admitted.exchange
        if not (isinstance(exchange, ResponsesExchange) and exchange.background):
            return await super().deliver(admitted)
        records, background = admitted.stores.records, admitted.gateway.background
        response_id = f"resp_{admitted.identity.id}"
        key = records.key(response_id)
        answer = admitted.answer()
        begun = answer.begin()
        frames = [answer.frame(told) for told in begun]
        with background.beginning(key):
            await _begin(admitted, response_id, frames)
            recorder = _Recorder(records, response_id, len(frames))
            background.start(key, admitted.holdings, partial(_record, admitted, answer, recorder))
        if not exchange.streaming:
            return web.json_response(begun[0]["response"], headers=admitted.headers)
        with admitted.gateway.activity.stay():  # until the reader has the end too, not only the writer
            return await follow(
                admitted.request, response_id, RecordedEvent(0, frames[0], last=False), -1, admitted.headers
            )


async def _begin(admitted: AdmittedExchange, response_id: str, frames: Sequence[bytes]) -> None:
    [job] = admitted.identity.prepared.jobs
    origin = Origin(admitted.gateway.background.instance, job.model, job.request_id)
    try:
        written = await admitted.stores.records.begin(response_id, origin, frames, job.timeout_ms)
    except (RedisError, *DISCONNECTED) as error:
        raise unavailable(REDIS_DOWN) from error
    if written is not AppendOutcome.OK:
        raise unavailable("There is no room for another background response; try again later.", "records_full")


class _Closed(Exception):
    """The record accepts no more events."""


class _Recorder:
    """Writes one record in order, and retries while Redis is away."""

    def __init__(self, records: RecordStore, response_id: str, written: int) -> None:
        self.response_id = response_id
        self._records = records
        self._number = written
        self._reconnect = Reconnect("recorder")

    def quiet_s(self) -> float:
        return math.inf  # a record has no reader to keep waiting

    async def send(self, frames: Sequence[bytes]) -> None:
        """Raises `_Closed`, or the `ApiError` with which to end the record."""
        if not frames:
            return
        number = self._number
        self._number += len(frames)
        written = await self._reconnect.insist(lambda: self._records.append(self.response_id, number, frames))
        if written is AppendOutcome.FULL:
            raise ApiError(500, _FULL, kind=SERVER, code="record_full")
        if written is AppendOutcome.GAP:
            raise ApiError(500, "Redis lost this request.", kind=SERVER, code="request_lost")
        if written is not AppendOutcome.OK:
            raise _Closed(written)

    async def finish(self, frames: Sequence[bytes]) -> None:
        """Write the one event that ends it. Raises `_Closed`."""
        [frame] = frames
        key = self._records.key(self.response_id)
        written = await self._reconnect.insist(lambda: self._records.finish(key, self._number, frame))
        if written is not AppendOutcome.OK:
            raise _Closed(written)


async def _record(admitted: AdmittedExchange, answer: Answer[Any], recorder: _Recorder) -> None:
    """Write the whole answer. `Recorders` ends a record that has no end."""
    [job] = admitted.identity.prepared.jobs
    try:
        async with asyncio.timeout(job.timeout_ms / 1000 + _GRACE_S):
            await recorder.finish(await play(admitted, answer, recorder))
    except _Closed:
        admitted.account.leave()
        with suppress(RedisError, *DISCONNECTED):
            await admitted.stores.responses.forget(recorder.response_id)
    except Exception:
        logger.exception("recording_failed", response=recorder.response_id)
