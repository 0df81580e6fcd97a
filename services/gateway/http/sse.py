"""Writes a stream: sends frames in order, breaks silence with a ping, and ends the stream of a client that stops
reading."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

HEARTBEAT_S: Final = 10.0  # clients and proxies give up on silence; the shortest limit that we know is 15 s
WRITE_TIMEOUT_S: Final = 30.0  # a client that reads nothing for this long is gone
DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"  # a comment, which clients do not take for an event
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class ClientGone(Exception):
    """The client left, or stopped reading."""


def frame(value: object) -> bytes:
    """One event whose data is `value` as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def event(value: Mapping[str, object]) -> bytes:
    """One event named by the `type` of `value`, which is its data as JSON."""
    return b"event: " + str(value["type"]).encode() + b"\n" + frame(value)


class EventStream:
    """One response. Every `send` is one write, whatever the number of frames."""

    def __init__(
        self,
        request: web.Request,
        content_type: str,
        *,
        headers: Mapping[str, str] | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self.response = web.StreamResponse(headers={**_HEADERS, **(headers or {}), "Content-Type": content_type})
        self._request = request
        self._heartbeat_s = heartbeat_s
        self._write_timeout_s = write_timeout_s
        self.stalled = False  # the client read nothing for too long
        self._loop = asyncio.get_running_loop()
        self._ping_at = self._loop.time() + heartbeat_s

    async def open(self) -> None:
        """Send the headers; from here on the status cannot change."""
        await self.response.prepare(self._request)

    def quiet_s(self) -> float:
        """Seconds until the silence is too long; 0: it is now."""
        return max(0.0, self._ping_at - self._loop.time())

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write the frames, if there are any. Raises `ClientGone`."""
        if not frames:
            return
        # A timer costs a tenth of asyncio.timeout, and almost no write has to wait.
        watch = self._loop.call_later(self._write_timeout_s, self._give_up)
        try:
            await self.response.write(b"".join(frames))
        except ConnectionError as error:
            raise ClientGone("the client disconnected") from error
        finally:
            watch.cancel()
        self._ping_at = self._loop.time() + self._heartbeat_s

    def _give_up(self) -> None:
        """The client stopped reading. Ending the connection ends the write, and cancels the handler."""
        self.stalled = True
        if self._request.transport is not None:
            self._request.transport.abort()
