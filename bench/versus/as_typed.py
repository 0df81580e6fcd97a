"""draftmesh as a user starts it on one machine: `draftmesh up` with its own choices, on free ports.

Nothing says how many threads anybody gets: how target and drafter share the cores is what is measured.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import aiohttp

from services.launcher.fleet.child import Child, Program, service_command
from services.launcher.fleet.cores import Cores, forking_on
from services.launcher.fleet.ports import LOOPBACK, claim_embedded
from services.launcher.fleet.stack import POLL_S, START_S, StackError
from shared.process.lifecycle import GRACE_S
from shared.settings import settings_file

_READY: Final = "draftmesh is ready"
_LINES: Final = 100  # of its log: after it is ready it may say a little more


def command(target: Path, draft: Path | None, *, port: int, redis_port: int, ctx: int) -> tuple[str, ...]:
    """What is typed: models, ports and context, as little else as possible."""
    options = ("--target-model", target, "--port", port, "--redis-port", redis_port, "--ctx", ctx)
    drafts = ("--draft-model", draft) if draft else ()
    return (*service_command("launcher"), "up", *map(str, (*options, *drafts)))


class Typed:
    """One `draftmesh up` on `cores`, with one drafter or none; an async context manager that stops it."""

    def __init__(self, target: Path, draft: Path | None, *, ctx: int, cores: Cores, log: Path, cache: Path) -> None:
        """`cache` keeps what a first start measures, for the next one."""
        self._port = claim_embedded(0)
        self._command = command(target, draft, port=self._port, redis_port=claim_embedded(0), ctx=ctx)
        self._drafted = draft is not None
        self._cores, self._log, self._cache = cores, log, cache
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def _start(self) -> None:
        home = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="draftmesh-"))
        # Nothing that the user set for other fleets counts.
        own = {"DRAFTMESH_CACHE": str(self._cache), "XDG_STATE_HOME": home, settings_file.VARIABLE: settings_file.OFF}
        others = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
        program = Program(name="up", command=self._command, stage=0, environment=others | own)
        self._child = Child(program, self._log)
        with forking_on(self._cores):
            await self._child.start()
        self._closing.push_async_callback(self._stop)
        url, timeout = f"http://{LOOPBACK}:{self._port}", aiohttp.ClientTimeout(total=None, sock_read=START_S)
        self.http = await self._closing.enter_async_context(aiohttp.ClientSession(url, timeout=timeout))
        await self._until(self._is_ready)

    async def _is_ready(self) -> bool:
        """Whether it says so, and has its drafter too."""
        if _READY not in "\n".join(self._child.last_lines(_LINES)):
            return False
        async with self.http.get("/status") as response:
            found = await response.json()
        return not self._drafted or any(drafter["kind"] == "model" for drafter in found["drafters"])

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        limit = time.monotonic() + START_S
        while not await condition():
            self._check()
            if time.monotonic() > limit:
                raise StackError(f"`draftmesh up` was not ready within {START_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def _check(self) -> None:
        if not self._child.alive:
            raise StackError(f"`draftmesh up` ended: {self._child.error_line()}")

    async def _stop(self) -> None:
        """Let it stop its processes by itself; after the time that it grants them, it is killed."""
        self._child.terminate()
        try:
            async with asyncio.timeout(2 * GRACE_S):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
