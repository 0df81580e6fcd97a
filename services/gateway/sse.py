"""Writes server-sent events: frames in order, a comment in silence, and a bound on clients that stop reading."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

HEARTBEAT_S: Final = 10.0  # clients and proxies give up on silence; the shortest limit met in the field is 15 s
WRITE_TIMEOUT_S: Final = 30.0  # a client that reads nothing for this long is gone
DONE: Final = b"data: [DONE]\n\n"
_PING: Final = b": ping\n\n"
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class ClientGone(Exception):
    """The client left, or takes nothing any more."""


def frame(value: object) -> bytes:
    """One event whose data is `value` as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream:
    """One response. Every `send` is one write, whatever the number of frames."""

    def __init__(
        self, request: web.Request, *, heartbeat_s: float = HEARTBEAT_S, write_timeout_s: float = WRITE_TIMEOUT_S
    ) -> None:
        self.response = web.StreamResponse(headers=_HEADERS)
        self._request = request
        self._heartbeat_s = heartbeat_s
        self._write_timeout_s = write_timeout_s
        self._clock = asyncio.get_running_loop().time
        self._ping_at = self._clock() + heartbeat_s

    async def open(self) -> None:
        """Send the headers; from here on the status cannot change."""
        await self.response.prepare(self._request)

    def quiet_s(self) -> float:
        """Seconds until the silence is long enough for a comment."""
        return max(0.0, self._ping_at - self._clock())

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write the frames, or a comment if there are none and the silence is long enough. Raises `ClientGone`."""
        if not frames and self._clock() < self._ping_at:
            return
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await self.response.write(b"".join(frames) or _PING)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientGone("the client stopped reading") from None
        except ConnectionError as error:
            raise ClientGone("the client disconnected") from error
        self._ping_at = self._clock() + self._heartbeat_s
