"""The ways in which a working Redis refuses for a while, each brought about on a real server and taken back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from tests.ports import free_port

# What a server needs for `LOADING`.
DEBUG: Final = ("--enable-debug-command", "local")
_LOADING_S: Final = 2.0
_KEYS: Final = 20


@asynccontextmanager
async def _set(server: Any, **settings: str) -> AsyncIterator[None]:
    names = {name.replace("_", "-"): value for name, value in settings.items()}
    before = {name: (await server.config_get(name))[name] for name in names}
    for name, value in names.items():
        await server.config_set(name, value)
    yield
    for name, value in before.items():
        await server.config_set(name, value)


def _too_few_replicas(server: Any) -> AbstractAsyncContextManager[None]:
    return _set(server, min_replicas_to_write="1")


def _full(server: Any) -> AbstractAsyncContextManager[None]:
    return _set(server, maxmemory="1")


@asynccontextmanager
async def _disk(server: Any) -> AsyncIterator[None]:
    """Its snapshots fail, since a folder stands where the file should be."""

    async def saves() -> bool:
        return str((await server.info("persistence"))["rdb_last_bgsave_status"]) == "ok"

    folder = Path((await server.config_get("dir"))["dir"]) / "dump.rdb"
    folder.unlink(missing_ok=True)
    folder.mkdir()
    async with _set(server, save="3600 1"):
        await server.bgsave()
        await _until(saves, False)
        yield
    folder.rmdir()
    await server.bgsave()  # the server remembers that the last one failed
    await _until(saves, True)


@asynccontextmanager
async def _busy(server: Any) -> AsyncIterator[None]:
    async with _set(server, busy_reply_threshold="1"):
        script = asyncio.ensure_future(server.eval("while true do end", 0))
        await _until(partial(_refuses, server), True)
        yield
        await server.script_kill()
        await asyncio.gather(script, return_exceptions=True)


@asynccontextmanager
async def _loading(server: Any) -> AsyncIterator[None]:
    """For `_LOADING_S`: a server that loads takes no orders."""
    for index in range(_KEYS):
        await server.set(f"padding{index}", b"x" * 4096, px=60_000)
    settings = {"loading_process_events_interval_bytes": "1024", "rdbcompression": "no"}
    async with _set(server, **settings, key_load_delay=str(int(_LOADING_S / _KEYS * 1e6))):
        reload = asyncio.ensure_future(server.execute_command("DEBUG", "RELOAD"))
        await _until(partial(_refuses, server), True)
        yield
        await reload


@asynccontextmanager
async def _demoted(server: Any) -> AsyncIterator[None]:
    """It follows a primary that is not there, and still answers reads."""
    await server.replicaof("127.0.0.1", free_port())
    yield
    await server.replicaof("NO", "ONE")


@asynccontextmanager
async def _cut_off(server: Any) -> AsyncIterator[None]:
    async with _set(server, replica_serve_stale_data="no"), _demoted(server):
        yield


async def _until(condition: Callable[[], Awaitable[bool]], wanted: bool) -> None:
    while await condition() is not wanted:  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.02)


async def _refuses(server: Any) -> bool:
    with suppress(TimeoutError):
        try:
            async with asyncio.timeout(0.5):
                await server.get("anything")
        except RedisError:
            return True
    return False


REFUSALS: Final[dict[str, Callable[[Any], AbstractAsyncContextManager[None]]]] = {
    "NOREPLICAS": _too_few_replicas,
    "MISCONF": _disk,
    "OOM": _full,
    "BUSY": _busy,
    "LOADING": _loading,
    "MASTERDOWN": _cut_off,
    "READONLY": _demoted,
}


@asynccontextmanager
async def refusing(code: str, url: str) -> AsyncIterator[None]:
    """The server at `url` answers with this code for as long as the block lasts; it may run no other block."""
    async with redis.asyncio.Redis.from_url(url, socket_timeout=None) as server, REFUSALS[code](server):
        yield
