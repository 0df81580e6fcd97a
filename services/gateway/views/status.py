"""The fleet over HTTP: what `draftmesh status --json` prints, as JSON and as events."""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from services.gateway.errors import draining
from services.gateway.http.gateway import GATEWAY
from services.gateway.http.sse import PING, ClientGone, EventStream
from services.gateway.monitoring.watch import FleetWatch
from shared.fleet.describe import describe

_MEDIA: Final = "text/event-stream"


async def status(request: web.Request) -> web.Response:
    """The fleet as of the last second."""
    body = msgspec.json.encode(describe(await request.app[GATEWAY].directory.cards()))
    return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})


async def events(request: web.Request) -> web.StreamResponse:
    """History first, then snapshots until the client leaves or the gateway drains. Raises a 503 `ApiError` then."""
    gateway = request.app[GATEWAY]
    if gateway.watch.ended:
        raise draining()
    if request.method == "HEAD":
        return web.Response(content_type=_MEDIA)
    stream = EventStream(request, _MEDIA, heartbeat_s=gateway.heartbeat_s)
    with suppress(ClientGone), gateway.watch.looking():
        await stream.open()
        await stream.send([gateway.watch.history()])
        await _follow(gateway.watch, stream)
    return stream.response


async def _follow(watch: FleetWatch, stream: EventStream) -> None:
    seen = 0
    while True:
        try:
            async with asyncio.timeout(stream.quiet_s()):
                news = await watch.next(seen)
        except TimeoutError:
            await stream.send([PING])
            continue
        if news is None:
            return
        seen, snapshot = news
        await stream.send([snapshot])
