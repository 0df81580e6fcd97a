"""Reading a log to its end, chunk by chunk."""

import asyncio
from collections.abc import AsyncGenerator

from services.gateway.storage.follow import LogFollower
from shared.wire.messages import Chunk, Finish


async def follow(follower: LogFollower, request_id: str, offset: int = 0) -> AsyncGenerator[Chunk, None]:
    """The chunks of a request from token `offset` on; ends after the terminal chunk. Raises `LogLost`."""
    stirred = asyncio.Event()
    feed = follower.join(request_id, stirred.set, offset)
    try:
        while True:
            await stirred.wait()
            stirred.clear()
            while chunks := feed.take():
                for chunk in chunks:
                    yield chunk
                    if chunk.finish is not Finish.NONE:
                        return
    finally:
        follower.leave(feed)
