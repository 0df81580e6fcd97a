"""What tests of responses in the background have in common."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from services.gateway.service import serve
from shared.model.llama.model import Model
from shared.wire import keys
from tests.patience import HANG_S
from tests.service.gateway.responses_events import events, official
from tests.service.scripted import EOG, MODEL, Script, Stack, Step, cut, fixed, gateway_settings

TEXT = "The sky is blue, the grass is green and the sea is deep."
KEY = {"Authorization": "Bearer none"}  # the SDK's in these tests


async def begun(s: Stack, *, url: str = "", **fields: Any) -> dict[str, Any]:
    """The response object of a new response in the background."""
    body = {"model": MODEL, "input": "Hi", "background": True, **fields}
    async with s.session.post(f"{url or s.url}/v1/responses", json=body, headers=KEY) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


async def read(s: Stack, response_id: str, after: int = -1, *, url: str = "", header: bool = False) -> list[Any]:
    """The events behind one, up to the end of the stream."""
    query = {"stream": "true"}
    if after >= 0 and not header:
        query["starting_after"] = str(after)
    headers = KEY | ({"Last-Event-ID": str(after)} if header else {})
    place = f"{url or s.url}/v1/responses/{response_id}"
    async with s.session.get(place, params=query, headers=headers) as response:
        assert response.status == 200, await response.text()
        return events(await response.text(), after)


async def poll(s: Stack, response_id: str, *, url: str = "") -> dict[str, Any]:
    async with s.session.get(f"{url or s.url}/v1/responses/{response_id}", headers=KEY) as response:
        assert response.status == 200
        found: dict[str, Any] = await response.json()
        official(found)
        return found


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(HANG_S):
        while not await condition():  # noqa: ASYNC110 - it is another process's, as far as this test knows
            await asyncio.sleep(0.02)


async def has(s: Stack, response_id: str, *statuses: str) -> bool:
    return (await poll(s, response_id))["status"] in statuses


async def ended(s: Stack, response_id: str) -> dict[str, Any]:
    """The response at its end, by polling."""
    await until(lambda: has(s, response_id, "completed", "failed"))
    return await poll(s, response_id)


async def ready(s: Stack, url: str) -> bool:
    try:
        async with s.session.get(f"{url}/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def idle(s: Stack) -> bool:
    return not await running(s) and not await s.clients.redis.zcard(keys.admitted(MODEL))


async def running(s: Stack) -> int:
    """The requests that the gateway knows."""
    async with s.session.get(f"{s.url}/health/progress") as response:
        found: dict[str, int] = await response.json()
        return found["running"]


@asynccontextmanager
async def another_gateway(url: str, **changes: Any) -> AsyncIterator[str]:
    """The address of one more gateway on the same Redis."""
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(gateway_settings(url, **changes), stop, started))
    try:
        yield await started
    finally:
        stop.set()
        await task


def halting(model: Model, halt: asyncio.Event, text: str = TEXT) -> Script:
    """A script that waits in the middle of the text."""
    steps: list[Step] = cut([*model.vocabulary.tokenize(text), EOG], 1)
    return fixed(*steps[:4], halt, *steps[4:])


def texts(found: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")


async def stored(s: Stack) -> list[bytes]:
    redis: Any = s.clients.redis
    return list(await redis.keys("*"))
