"""Reads a job and its log, for whoever may: gateway, verifier and drafters."""

from typing import Final

from shared.wire import codec, keys
from shared.wire.commands import Redis
from shared.wire.messages import Chunk, Job

_PART: Final = 1000  # entries of a log in one reply


async def read_job(redis: Redis, request_id: str) -> Job | None:
    """The job itself, or None once it is gone."""
    payload = await redis.hget(keys.job(request_id), "payload")
    return None if payload is None else codec.decode_job(payload)


async def read_log(redis: Redis, request_id: str) -> list[tuple[int, Chunk]]:
    """Every chunk so far with the offset at which it starts.

    It reads a long log in parts, because the server answers nobody else while it collects a reply.
    """
    log: list[tuple[int, Chunk]] = []
    start = "-"
    while True:
        entries = await redis.xrange(keys.log(request_id), min=start, count=_PART)
        log += [parse_entry(entry_id, fields) for entry_id, fields in entries]
        if len(entries) < _PART:
            return log
        start = f"({entries[-1][0].decode()}"


def parse_entry(entry_id: bytes, fields: dict[bytes, bytes]) -> tuple[int, Chunk]:
    """A log entry as (offset at which the chunk starts, chunk). Raises `CodecError` for foreign entries."""
    chunk = codec.decode_chunk(fields.get(b"c", b""))
    end = int(entry_id.partition(b"-")[0])
    return end - len(chunk.tokens), chunk
