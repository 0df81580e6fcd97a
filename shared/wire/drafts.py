"""The hint plane: streams that may lose, repeat or delay messages, which costs only speed.

A drafter's inbox carries `Open`, `Commit` and `Close`: what a round decided for all requests of the drafter is one
entry, with a field for each. The drafter makes the inbox, so a hint to one that is not there leaves nothing behind. Its
outboxes, one per verifier, carry `Proposal`. Nobody writes what belongs to another drafter, so a drafter can fill,
damage or forge only its own streams. No acks, bounded length, a TTL that the reader renews. Messages that do not decode
are counted and skipped.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from redis.exceptions import ResponseError

from shared.wire import codec, keys
from shared.wire.broker import BLOCK_MS, DISCONNECTED, Reconnect
from shared.wire.commands import Fields, Pipeline, Redis
from shared.wire.messages import Hint, Proposal

STREAM_TTL_MS: Final = 60_000
STREAM_MAXLEN = 1000  # hints are worthless when old; about one minute of a busy verifier
ENTRY_BYTES: Final = 512  # what an entry costs its reader besides its bytes, in bytes
_BEGINNING: Final = "0-0"
_ENTRIES: Final = 16  # most entries of one drafter in one reply, because each may be as long as the server allows


class Inbox:
    """The reading end of one drafter's inbox. `blocking` must be a client whose reads may block."""

    def __init__(self, redis: Redis, blocking: Redis, drafter: str) -> None:
        self._redis, self._blocking = redis, blocking
        self._key = keys.inbox(drafter)
        self._cursor = ""  # "$" would skip entries that arrive between two reads; the id of the last entry does not
        self.undecodable = 0

    async def open(self) -> None:
        """Make the inbox anew, whatever lies there: later messages are read, earlier ones are not."""
        pipeline = self._redis.pipeline(transaction=True)  # otherwise the inbox might keep no TTL
        pipeline.delete(self._key)
        pipeline.xadd(self._key, {"m": b""}, maxlen=0, approximate=False)  # leaves an empty stream
        pipeline.pexpire(self._key, STREAM_TTL_MS)
        _, entry_id, _ = await pipeline.execute()
        self._cursor = entry_id.decode()

    async def renew(self) -> None:
        """Keep the inbox alive, or make it again if it is gone."""
        if not await self._redis.pexpire(self._key, STREAM_TTL_MS):
            await self.open()

    async def read(self, block_ms: int) -> list[Hint]:
        """Messages since the last read, in order, waiting up to `block_ms` for the first."""
        if not self._cursor:
            await self.open()
        try:
            reply = await self._blocking.xread({self._key: self._cursor}, count=512, block=block_ms)
        except ResponseError as error:
            if not str(error).startswith(("UNBLOCKED", "WRONGTYPE")):
                raise
            await self.open()
            return []
        messages: list[Hint] = []
        for _, entries in reply or []:
            for entry_id, fields in entries:
                self._cursor = entry_id.decode()
                messages += self._decoded(fields)
        return messages

    def _decoded(self, fields: Fields) -> Iterator[Hint]:
        for data in fields.values():
            try:
                yield codec.decode_hint(data)
            except codec.CodecError:
                self.undecodable += 1

    async def run(self, deliver: Callable[[list[Hint]], None]) -> None:
        """Read for ever and deliver each message once; survives Redis going away and coming back."""
        reconnect = Reconnect("inbox")
        while True:
            try:
                messages = await self.read(BLOCK_MS)
                reconnect.succeeded()
            except DISCONNECTED as error:
                await reconnect.failed(error)
                self._cursor = ""  # Redis may have restarted empty, and ids count from its clock again
                continue
            if messages:
                deliver(messages)


class Sent(NamedTuple):
    """What came from one drafter: its proposals, and what reading them cost, in bytes."""

    drafter: str
    proposals: list[Proposal]
    size: int


class Outboxes:
    """What the followed drafters write for one verifier. One blocking read serves all of them."""

    def __init__(self, redis: Redis, blocking: Redis, verifier: str) -> None:
        self._redis, self._blocking = redis, blocking
        self._verifier = verifier
        self._cursors: dict[str, str] = {}  # of each followed drafter, the id of the last entry read
        self._changed = asyncio.Event()
        self._reading: asyncio.Timeout | None = None
        self.undecodable = 0

    def follow(self, drafters: Collection[str]) -> None:
        """Read the outboxes of these drafters from now on, and no others."""
        if self._cursors.keys() == set(drafters):
            return
        self._cursors = {name: self._cursors.get(name, _BEGINNING) for name in drafters}
        self._changed.set()
        if self._reading is not None:
            self._reading.reschedule(0.0)  # ends the read at once; what it would have brought is read again

    async def tidy(self) -> None:
        """Trim what was read, whoever wrote how much, and renew the outboxes. Goes on past streams that are none."""
        pipeline = self._redis.pipeline(transaction=False)
        for drafter, cursor in self._cursors.items():
            key, (moment, _, place) = keys.outbox(drafter, self._verifier), cursor.partition("-")
            pipeline.xtrim(key, minid=f"{moment}-{int(place) + 1}", approximate=False)
            pipeline.pexpire(key, STREAM_TTL_MS)
        if self._cursors:
            await pipeline.execute(raise_on_error=False)

    async def clear(self, drafters: Collection[str]) -> None:
        """Remove the outboxes of these drafters."""
        if drafters:
            await self._redis.delete(*(keys.outbox(drafter, self._verifier) for drafter in drafters))

    async def run(self, deliver: Callable[[Sent], None]) -> None:
        """Read for ever; survives Redis going away and coming back."""
        reconnect = Reconnect("outboxes")
        while True:
            self._changed.clear()
            if not self._cursors:
                await self._changed.wait()
                continue
            try:
                found = await self.read(BLOCK_MS)
                reconnect.succeeded()
                for sent in found:
                    deliver(sent)
            except DISCONNECTED as error:
                if self._changed.is_set():
                    continue
                await reconnect.failed(error)
                # Redis may have restarted empty, and ids count from its clock again.
                self._cursors = dict.fromkeys(self._cursors, _BEGINNING)

    async def read(self, block_ms: int) -> list[Sent]:
        """What came since the last read, by drafter and in order, waiting up to `block_ms` for the first."""
        drafters = {keys.outbox(drafter, self._verifier): drafter for drafter in self._cursors}
        cursors = {key: self._cursors[drafter] for key, drafter in drafters.items()}
        try:
            async with asyncio.timeout(None) as self._reading:
                reply = await self._blocking.xread(cursors, count=_ENTRIES, block=block_ms)
        except ResponseError as error:
            if not str(error).startswith(("UNBLOCKED", "WRONGTYPE")):
                raise
            await self.clear(drafters.values())  # one of them is no stream; the others lose a few proposals
            return []
        finally:
            self._reading = None
        found = []
        for key, entries in reply or []:
            drafter = drafters[key.decode()]
            if drafter in self._cursors:
                self._cursors[drafter] = entries[-1][0].decode()
                proposals = self._decoded(drafter, [fields for _, fields in entries])
                found.append(Sent(drafter, proposals, sum(_cost(fields) for _, fields in entries)))
        return found

    def _decoded(self, drafter: str, entries: Iterable[Fields]) -> list[Proposal]:
        proposals = []
        for fields in entries:
            try:
                proposal = codec.decode_proposal(fields.get(b"m", b""))
            except codec.CodecError:
                self.undecodable += 1
                continue
            if proposal.drafter == drafter:  # nobody speaks for another
                proposals.append(proposal)
            else:
                self.undecodable += 1
        return proposals


def _cost(fields: Fields) -> int:
    return ENTRY_BYTES + sum(len(name) + len(value) for name, value in fields.items())


def burst(lead: int, want: int) -> int:
    """How many tokens a drafter's next message carries when it is `lead` tokens ahead and the verifier waits for
    `want`.

    It sends the wanted tokens at once. Otherwise, near the committed end each token may make a round worth starting, so
    messages are short. Further out they are longer, because each costs both ends more than half a token's time.
    """
    return want - lead if lead < want else min(1 + lead // 3, 6)


async def send(redis: Redis, hints: Iterable[tuple[str, Hint]]) -> None:
    """Put the hints into the inboxes of the drafters named with them, in one round trip.

    Ignores inboxes that take none.
    """
    pipeline = redis.pipeline(transaction=False)
    if queue(pipeline, hints):
        await pipeline.execute(raise_on_error=False)


def queue(pipeline: Pipeline, hints: Iterable[tuple[str, Hint]]) -> int:
    """Add the commands that send the hints to a pipeline, one for each drafter, and return their number.

    The pipeline must not be a transaction, and its errors at these commands mean nothing: whatever a drafter made of
    its inbox, only its own hints are lost.
    """
    inboxes: dict[str, list[Hint]] = {}
    for drafter, hint in hints:
        inboxes.setdefault(drafter, []).append(hint)
    for drafter, together in inboxes.items():
        entry = {str(place): codec.encode(hint) for place, hint in enumerate(together)}
        pipeline.xadd(keys.inbox(drafter), entry, maxlen=STREAM_MAXLEN, approximate=True, nomkstream=True)
    return len(inboxes)


async def propose(redis: Redis, drafter: str, proposals: Iterable[tuple[str, Proposal]]) -> None:
    """Put each proposal into this drafter's outbox for the verifier named with it, in one round trip."""
    pipeline = redis.pipeline(transaction=True)  # otherwise an outbox might keep no TTL
    outboxes: dict[str, None] = {}  # sorted, so that equal messages make equal commands
    for verifier, proposal in proposals:
        key = keys.outbox(drafter, verifier)
        pipeline.xadd(key, {"m": codec.encode(proposal)}, maxlen=STREAM_MAXLEN, approximate=True)
        outboxes[key] = None
    for key in outboxes:
        pipeline.pexpire(key, STREAM_TTL_MS)
    if outboxes:
        await pipeline.execute()
