"""What becomes of a request's jobs when its reader goes."""

import asyncio
from typing import Any, cast

import pytest

from services.gateway.generator import Answer
from services.gateway.models import Lexicon
from services.gateway.preparation import Prepared, Reading, jobs
from services.gateway.requests import Document, GenerationRequest
from shared.messages import Sampling
from tests.splitting import PROMPT, SERVED


class Store:
    """Remembers what was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    async def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)


class Follower:
    """Follows nothing."""

    def join(self, *_: object) -> object:
        return object()

    def leave(self, _: object) -> None:
        pass


async def test_every_job_is_cancelled_though_the_reader_is_cancelled_again() -> None:
    prompt = Document(content=PROMPT)
    request = GenerationRequest(model=None, prompts=(prompt,), sampling=Sampling(seed=1), choices=3)
    made = tuple(jobs(request, SERVED, 100, PROMPT, 1000))
    reading = Reading(piece=lambda _: b"")
    prepared = Prepared(model=SERVED, lexicon=cast(Lexicon, None), jobs=made, choices=3, reading=reading)
    store = Store()
    answer = Answer(cast(Any, store), cast(Any, Follower()), prepared)
    closing = asyncio.create_task(answer.close())
    await asyncio.sleep(0)  # it has begun, and none of the cancellations has
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.cancelled == [job.request_id for job in made]
