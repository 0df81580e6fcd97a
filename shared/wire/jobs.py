"""The durable plane: a committed token is in the log exactly once, and a request ends with exactly one terminal chunk.

`JobStore` is used by the gateway (submit, cancel) and the verifier (claim, commit, renew, release). Every call is an
idempotent script, so a retry after a lost reply is harmless. Errors are redis-py's `RedisError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from redis.exceptions import NoScriptError, ResponseError

from shared.wire import codec, keys, mending, scripts
from shared.wire.commands import Entries, Redis
from shared.wire.connection import RefusedError
from shared.wire.messages import MAX_NAME, Chunk, Finish, Job
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

LATE: Final = Chunk(tokens=(), finish=Finish.DEADLINE, detail="The request's deadline passed.")
_DEADLINE = codec.encode(LATE)
_POISON = codec.encode(
    Chunk(tokens=(), finish=Finish.ERROR, detail="Several verifiers failed on this request, so it was given up.")
)
_UNREADABLE = Chunk(tokens=(), finish=Finish.ERROR, detail="The record of this request in Redis is damaged.")
_CANCELLED = codec.encode(Chunk(tokens=(), finish=Finish.CANCELLED))
_UNREAD = codec.encode(Chunk(tokens=(), finish=Finish.ERROR, detail="The gateway of this request has stopped."))

_REMEMBERED_ENTRIES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to commit for one request until the lease ends or a later epoch is claimed."""

    job: Job
    epoch: int
    committed: int  # tokens in the log at the time of the claim
    remaining_ms: int  # until the request's deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One commit to be sent: `chunk` at offset `base` of a request, under `epoch`."""

    request_id: str
    epoch: int
    base: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Renewal:
    """A sign of life for a claim that has nothing to commit yet."""

    request_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs that no verifier has taken yet, and how long the oldest of them has waited."""

    waiting: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The caller, in letters and digits, and its limits; 0: as much as fits. "" stands for all callers without a key.

    A job's tokens are those that it may occupy: its prompt and its longest possible answer.
    """

    caller: str = ""
    limit: int = 0  # live jobs of this caller
    tokens: int = 0  # of all live jobs of the model


class JobStore:
    """Jobs and logs of one model on one Redis. `redis` must not block; `blocking` is for `next_job` alone."""

    def __init__(self, redis: Redis, blocking: Redis, model: str, lease_ms: int = 10_000) -> None:
        self._redis = redis
        self._blocking = blocking
        self._model = model
        self._lease_ms = lease_ms
        self._orphan_cursor = "0-0"
        self._entries: dict[str, bytes] = {}  # request ids that were delivered, with their stream entries

    async def submit(self, job: Job, limit: int, reader: str = "", admission: Admission | None = None) -> ScriptOutcome:
        """Admit and queue a job: `OK`, or `DUPLICATE` if its id was submitted before.

        `FULL` above `limit` live jobs or the tokens that `admission` allows, `OVER` if the caller has its share.
        `reader` is the gateway that follows the log: once it is dead, the job may be abandoned. A job with "" is never
        abandoned.
        """
        asked = admission or Admission()
        arguments = [job.request_id, keys.GROUP, codec.encode(job), limit, job.timeout_ms, reader]
        arguments += [asked.caller, len(job.prompt) + job.max_tokens, asked.limit, asked.tokens, _DEADLINE]
        return scripts.outcome(await scripts.SUBMIT.run(self._redis, self._names(job.request_id), arguments))

    async def cancel(self, request_id: str) -> ScriptOutcome:
        """End a request now; its verifier learns at its next commit. A request that ended before is left as it is.

        If the cancellation overtakes the submission (`GONE`), the request will not be submitted.
        """
        return await self._cancel(request_id, _CANCELLED)

    async def _cancel(self, request_id: str, last: bytes) -> ScriptOutcome:
        arguments = [request_id, keys.GROUP, last]
        try:
            return scripts.outcome(await scripts.CANCEL.run(self._redis, self._names(request_id), arguments))
        except ResponseError as error:
            return scripts.outcome(_readable(error))

    async def queue(self) -> Queue:
        """The queue now. It does not count the jobs of a verifier that died, because they were taken once."""
        waiting, oldest_ms = await scripts.QUEUE.run(self._redis, [keys.lanes(self._model)], [])
        return Queue(int(waiting), int(oldest_ms))

    async def next_job(self, owner: str, block_ms: int) -> str | None:
        """The id of a job that no verifier was given yet, waiting up to `block_ms` for one."""
        stream = keys.jobs(self._model)
        try:
            reply = await self._blocking.xreadgroup(keys.GROUP, owner, {stream: ">"}, count=1, block=block_ms)
        except ResponseError as error:
            if not _group_is_missing(error):
                raise
            await self.ensure_group()  # from the start of the backlog
            return None
        for _, entries in reply or []:
            for request_id in await self._delivered(entries):
                return request_id
        return None

    async def ensure_group(self) -> None:
        """Make the consumer group if it is missing and keep the stream alive."""
        stream = keys.jobs(self._model)
        pipeline = self._redis.pipeline(transaction=True)  # otherwise a stream could be made that never expires
        pipeline.xgroup_create(stream, keys.GROUP, id="0", mkstream=True)
        pipeline.pexpire(stream, scripts.STREAM_TTL_MS)
        try:
            await pipeline.execute()
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def mend(self) -> None:
        """Find jobs again that only their hashes know, because Redis lost another key of this model."""
        await mending.mend(self._redis, self._model)

    async def orphans(self, owner: str, count: int = 64) -> list[str]:
        """Ids of jobs that a verifier was given and that have not ended; most are still held.

        Ignores their idle time, because asking resets it, so that one verifier could starve another for ever.
        """
        try:
            reply = await self._redis.xautoclaim(
                keys.jobs(self._model), keys.GROUP, owner, 0, start_id=self._orphan_cursor, count=count
            )
        except ResponseError as error:
            if not _group_is_missing(error):
                raise
            await self.ensure_group()
            return []
        # Carrying the cursor forward keeps early entries from starving late ones.
        self._orphan_cursor = reply[0].decode() if isinstance(reply[0], bytes) else str(reply[0])
        return await self._delivered(reply[1])

    async def _delivered(self, entries: Entries) -> list[str]:
        """The request ids of stream entries; a trimmed entry has no fields.

        An entry without a request would be delivered for ever, so this removes it.
        """
        ids = {}
        for entry_id, fields in entries:
            request_id = _request_id(fields)
            if request_id:
                ids[request_id] = entry_id
            elif fields:
                logger.error("job_entry_dropped", entry=entry_id.decode())
                await self._take_off(entry_id)
        if len(self._entries) > _REMEMBERED_ENTRIES:
            self._entries.clear()  # a later orphan check finds the jobs that still matter
        self._entries.update(ids)
        return list(ids)

    async def _take_off(self, entry_id: bytes) -> None:
        await self._redis.xack(keys.jobs(self._model), keys.GROUP, entry_id)
        await self._redis.xdel(keys.jobs(self._model), entry_id)

    async def live(self) -> list[str]:
        """Ids of the admitted jobs, waiting and held; one whose deadline passed may still be among them."""
        return [name.decode() for name in await self._redis.zrange(keys.admitted(self._model), 0, -1)]

    async def readers(self, request_ids: Sequence[str]) -> list[str]:
        """The reader of each of these jobs; "" for a job that has none, is gone or cannot be read."""
        pipeline = self._redis.pipeline(transaction=False)
        for request_id in request_ids:
            pipeline.hget(keys.job(request_id), "reader")
        replies = [_readable(reply) for reply in await pipeline.execute(raise_on_error=False)]
        return [reply.decode(errors="replace") if isinstance(reply, bytes) else "" for reply in replies]

    async def abandon(self, request_id: str) -> ScriptOutcome:
        """End a request whose reader is gone, as `cancel` does; a late reader gets an error."""
        return await self._cancel(request_id, _UNREAD)

    async def claim(self, request_id: str, owner: str) -> Claim | ScriptOutcome:
        """Raise the epoch and take the lease, or say why not. A passed deadline or poison ends the job here.

        So does a job that cannot be read: `DAMAGED`.
        """
        arguments = [request_id, keys.GROUP, owner, self._lease_ms, _DEADLINE, _POISON]
        names = [*self._names(request_id), keys.dead(self._model)]
        try:
            reply = await scripts.CLAIM.run(self._redis, names, arguments)
            result = scripts.outcome(reply)
        except ResponseError as error:
            if not _is_of_another_shape(error):
                raise
            reply, result = None, ScriptOutcome.DAMAGED
        entry = self._entries.pop(request_id, None)
        if result is ScriptOutcome.OK:
            claim = _claim(request_id, reply)
            if claim is not None:
                return claim
            result = ScriptOutcome.DAMAGED
        if result is not ScriptOutcome.HELD and entry is not None:
            # It has ended, expired or is not a job, and perhaps no script will remove the entry from the stream.
            await self._take_off(entry)
        if result is ScriptOutcome.DAMAGED:
            logger.error("job_damaged", request=request_id)
            if reply is not None and len(reply) > 2:
                await self.give_up(request_id, reply[1], reply[2])
        return result

    async def give_up(self, request_id: str, epoch: int, committed: int) -> None:
        """End a claimed job whose payload or log cannot be read, if its keys can still be written."""
        try:
            await self.commit([Append(request_id=request_id, epoch=epoch, base=committed, chunk=_UNREADABLE)])
        except (ResponseError, codec.CodecError) as error:
            if isinstance(error, RefusedError):
                raise

    async def commit(self, appends: Sequence[Append], renewals: Sequence[Renewal] = ()) -> list[ScriptOutcome]:
        """Send a round's commits and renewals in one round trip.

        Returns one outcome per append, then one per renewal. `DUPLICATE` means that an earlier try succeeded, `DAMAGED`
        that the request's keys hold something else.
        """
        try:
            return await self._commit(appends, renewals)
        except NoScriptError:
            # Redis has restarted. It may restart again, so this sends the whole scripts.
            return await self._commit(appends, renewals, known=False)

    async def _commit(
        self, appends: Sequence[Append], renewals: Sequence[Renewal], known: bool = True
    ) -> list[ScriptOutcome]:
        pipeline = self._redis.pipeline(transaction=False)  # each commit stands for itself
        for append in appends:
            chunk = append.chunk
            arguments = [append.request_id, keys.GROUP, append.epoch, append.base, len(chunk.tokens)]
            arguments += [codec.encode(chunk), self._lease_ms, int(chunk.finish is not Finish.NONE)]
            scripts.COMMIT.queue(pipeline, self._names(append.request_id), arguments, known)
        for renewal in renewals:
            arguments = [renewal.request_id, keys.GROUP, renewal.epoch, self._lease_ms]
            scripts.RENEW.queue(pipeline, self._names(renewal.request_id), arguments, known)
        return [scripts.outcome(_readable(reply)) for reply in await pipeline.execute(raise_on_error=False)]

    async def release(self, request_id: str, epoch: int) -> ScriptOutcome:
        """Give a claim back so that a peer takes it over at once."""
        arguments = [request_id, keys.GROUP, epoch]
        return scripts.outcome(await scripts.RELEASE.run(self._redis, self._names(request_id), arguments))

    def _names(self, request_id: str) -> list[str]:
        return scripts.names(request_id, self._model)


def _group_is_missing(error: ResponseError) -> bool:
    """Whether the stream or its group vanished: expired, flushed, or Redis came back empty."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED", "The XGROUP subcommand requires"))


def _readable(reply: Any) -> Any:
    """A pipeline's reply, `DAMAGED` if the request's keys hold something else. Raises an error of the server itself."""
    if not isinstance(reply, Exception):
        return reply
    if isinstance(reply, ResponseError) and _is_of_another_shape(reply):
        return ScriptOutcome.DAMAGED
    raise reply


def _claim(request_id: str, reply: Sequence[Any]) -> Claim | None:
    try:
        _, epoch, committed, payload, remaining_ms = reply  # Lua ends a reply at the first nil
        job = codec.decode_job(payload or b"")
        numbers = {"epoch": int(epoch), "committed": int(committed), "remaining_ms": int(remaining_ms)}
    except (codec.CodecError, TypeError, ValueError):
        return None
    return Claim(job=job, **numbers) if job.request_id == request_id and numbers["committed"] >= 0 else None


def _is_of_another_shape(error: ResponseError) -> bool:
    """Whether a script failed because a job's keys hold something else, and not because of the server.

    A server's own errors have a class of their own (`RefusedError`, `NoPermissionError`) or a code before the text;
    redis-py drops the code `ERR`.
    """
    code = str(error).partition(" ")[0]
    return type(error) is ResponseError and (code == "WRONGTYPE" or not code.isupper())


def _request_id(fields: dict[bytes, bytes]) -> str:
    """The request that an entry of a job stream names; empty if it names no possible id."""
    try:
        request_id = fields.get(b"r", b"").decode()
    except UnicodeDecodeError:
        return ""
    return request_id if len(request_id) <= MAX_NAME else ""
