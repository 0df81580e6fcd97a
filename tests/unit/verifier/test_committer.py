"""In which order a round's messages go out, and what an absent Redis costs."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from redis.exceptions import ConnectionError as RedisConnectionError

from services.verifier.committer import Batch, Committer
from services.verifier.generation import Generation
from shared.wire import keys
from shared.wire.jobs import Append, Renewal
from shared.wire.messages import Chunk, Close
from shared.wire.scripts import ScriptOutcome


class Wire:
    """Redis and the job store in one: notes what goes out, in order."""

    def __init__(self, hints_fail: bool = False) -> None:
        self.sent: list[str] = []
        self._hints_fail = hints_fail
        self._inboxes: list[str] = []

    def pipeline(self, transaction: bool) -> "Wire":
        return self

    def xadd(self, key: str, fields: dict[str, bytes], **bounds: Any) -> None:
        self._inboxes.append(key)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        await asyncio.sleep(0)
        if self._hints_fail:
            raise RedisConnectionError
        self.sent += self._inboxes
        return self._inboxes

    async def commit(self, appends: Sequence[Append], renewals: Sequence[Renewal]) -> list[ScriptOutcome]:
        self.sent += [append.request_id for append in appends]
        return [ScriptOutcome.OK for _ in appends]


async def settled(wire: Wire) -> list[str]:
    """What goes out of a round that gave one request tokens and told one drafter of it."""
    lost: list[Generation] = []
    committer = Committer(cast(Any, wire), cast(Any, wire), lambda one, outcome: lost.append(one), lambda name: None)
    running = asyncio.create_task(committer.run())
    append = Append(request_id="r1", epoch=1, base=0, chunk=Chunk(tokens=(4,)))
    hint = ("d", Close(request_id="r1"))
    await committer.put(Batch(appends=[(cast(Any, object()), append)], hints=[hint]))
    await committer.flush()
    running.cancel()
    assert not lost
    return wire.sent


async def test_hints_go_out_before_the_commits_of_their_round() -> None:
    assert await settled(Wire()) == [keys.inbox("d"), "r1"]


async def test_hints_that_cannot_be_sent_keep_no_commit_back() -> None:
    assert await settled(Wire(hints_fail=True)) == ["r1"]
