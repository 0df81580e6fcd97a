"""The hint plane: inboxes that may lose, repeat or delay messages, which costs only speed.

A drafter's inbox carries `Open`, `Commit` and `Close`; a verifier's carries `Proposal` and `Hello`. No acks, bounded
length, a TTL that the owner renews. Messages that do not decode are counted and skipped.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from redis.exceptions import ResponseError

from shared.wire import codec, keys
from shared.wire.broker import BLOCK_MS, DISCONNECTED, Reconnect
from shared.wire.commands import Pipeline, Redis
from shared.wire.messages import Hint, Reply

INBOX_TTL_MS = 60_000
INBOX_MAXLEN = 1000  # hints are worthless when old; about one minute of a busy verifier
M = TypeVar("M")


class Inbox(Generic[M]):
    """The reading end of one process's inbox. `blocking` must be a client whose reads may block."""

    def __init__(self, blocking: Redis, instance: str, decode: Callable[[bytes], M]) -> None:
        self._redis = blocking
        self._key = keys.inbox(instance)
        self._decode = decode
        self._cursor = ""  # "$" would skip entries that arrive between two reads; the id of the last entry does not
        self.undecodable = 0

    async def open(self) -> None:
        """Start reading here: later messages are read, earlier ones are not."""
        entries = await self._redis.xrevrange(self._key, count=1)
        self._cursor = entries[0][0].decode() if entries else "0-0"

    async def read(self, block_ms: int) -> list[M]:
        """Messages since the last read, in order, waiting up to `block_ms` for the first."""
        if not self._cursor:
            await self.open()
        try:
            reply = await self._redis.xread({self._key: self._cursor}, count=512, block=block_ms)
        except ResponseError as error:
            if not str(error).startswith("UNBLOCKED"):
                raise
            self._cursor = "0-0"
            return []
        messages = []
        for _, entries in reply or []:
            for entry_id, fields in entries:
                self._cursor = entry_id.decode()
                try:
                    messages.append(self._decode(fields.get(b"m", b"")))
                except codec.CodecError:
                    self.undecodable += 1
        return messages

    async def run(self, deliver: Callable[[list[M]], None]) -> None:
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


def burst(lead: int, want: int) -> int:
    """How many tokens a drafter's next message carries when it is `lead` tokens ahead and the verifier waits for
    `want`.

    It sends the wanted tokens at once. Otherwise, near the committed end each token may make a round worth starting, so
    messages are short. Further out they are longer, because each costs both ends more than half a token's time.
    """
    return want - lead if lead < want else min(1 + lead // 3, 6)


async def send(redis: Redis, messages: Iterable[tuple[str, Hint | Reply]]) -> None:
    """Put each message into the inbox of the instance named with it, in one round trip."""
    pipeline = redis.pipeline(transaction=True)
    if queue(pipeline, messages):
        await pipeline.execute()


def queue(pipeline: Pipeline, messages: Iterable[tuple[str, Hint | Reply]]) -> int:
    """Add the commands that send the messages to a pipeline, and return their number.

    The pipeline should be a transaction: a partial one might leave an inbox that never expires.
    """
    commands = 0
    inboxes: dict[str, None] = {}  # sorted, so that equal messages make equal commands
    for instance, message in messages:
        key = keys.inbox(instance)
        pipeline.xadd(key, {"m": codec.encode(message)}, maxlen=INBOX_MAXLEN, approximate=True)
        inboxes[key] = None
        commands += 1
    for key in inboxes:
        pipeline.pexpire(key, INBOX_TTL_MS)  # so that an inbox does not outlive its owner for long
    return commands + len(inboxes)
