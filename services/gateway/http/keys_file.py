"""The file of clients' keys while the gateway runs: a key that is added or removed takes effect within two seconds."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from shared.errors import StartError
from shared.process import api_keys

logger = structlog.get_logger()

LOOK_S: Final = 1.0

_State = tuple[int, int, int] | None


class KeysFile:
    """One file, read again whenever it changed."""

    def __init__(self, path: str) -> None:
        """Raises `StartError` if it does not hold keys."""
        self._path = Path(path).expanduser()
        self._state = self._look()
        self.digests: Sequence[bytes] = list(api_keys.read(self._path).values())

    def changed(self) -> bool:
        """Whether `digests` changed since the last call.

        A file without keys changes nothing: a program may be writing it, and an empty list would let everyone in.
        """
        state = self._look()
        if state == self._state:
            return False
        self._state = state
        try:
            self.digests = list(api_keys.read(self._path).values())
        except StartError as error:
            logger.error("api_keys_unusable", error=str(error))
            return False
        logger.info("api_keys_read", keys=len(self.digests))
        return True

    def _look(self) -> _State:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


async def watch(
    file: KeysFile,
    use: Callable[[Sequence[bytes]], object],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Give `use` the digests whenever they change, for ever."""
    while True:
        await sleep(LOOK_S)
        if await asyncio.to_thread(file.changed):
            use(file.digests)
