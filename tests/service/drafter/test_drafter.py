"""The drafter's loops over a real Redis server: every hint is acted on once."""

import asyncio

from services.drafter.proposer import Draft, Opening
from shared.fleet.registry import Registry
from shared.wire.broker import Broker
from shared.wire.drafts import send
from shared.wire.jobs import JobStore
from shared.wire.messages import Close, Commit, Hint, Open
from tests.patience import HANG_S
from tests.stack import drafter
from tests.toys import EOG, VOCABULARY, job


class Recorder:
    """Does nothing but write down what it is told."""

    busy = False
    step_us = 0
    burst = 1
    sessions = 0

    def __init__(self) -> None:
        self.told: list[str] = []
        self.heard = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _note(self, what: str) -> None:
        self.told.append(what)
        self._loop.call_soon_threadsafe(self.heard.set)

    def open(self, opening: Opening) -> None:
        self._note("open")

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        self._note(f"commit {base}")
        return True

    def close(self, request_id: str) -> None:
        self._note("close")

    def step(self) -> list[Draft]:
        return []


async def test_every_hint_is_acted_on_once_however_they_arrive(valkey: Broker, valkey_url: str) -> None:
    await JobStore(valkey.redis, valkey.blocking, "toy").submit(job(), 10)
    recorder = Recorder()
    hints: list[Hint] = [
        Open(request_id="r1", reply_to="v", epoch=1, eog=(EOG,), n_vocab=VOCABULARY, lead=8),
        *(Commit(request_id="r1", epoch=1, base=base, tokens=(4,), lead=8) for base in range(6)),
        Close(request_id="r1"),
    ]
    async with drafter(valkey_url, recorder, name="d"), asyncio.timeout(HANG_S):
        while not await Registry(valkey.redis).list():  # noqa: ASYNC110 - it appears in Redis
            await asyncio.sleep(0.005)  # its card says that its inbox is open
        for hint in hints:
            recorder.heard.clear()
            await send(valkey.redis, [("d", hint)])
            await recorder.heard.wait()
    assert recorder.told == ["open", *(f"commit {base}" for base in range(6)), "close"]
