"""A file that tells probes without a port that this process serves: it is there meanwhile, and never long untouched."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

logger = structlog.get_logger()

TOUCH_S: Final = 5.0


class ReadyFile:
    """The file at `path`; an empty path is no file. Never raises `OSError`."""

    def __init__(self, path: str = "", sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._path = Path(path) if path else None
        self._sleep = sleep
        self._over = False

    async def run(self) -> None:
        """Make the file, and touch it every `TOUCH_S` for as long as the event loop turns, until `end`; for ever."""
        said = False
        while True:
            if self._path is not None and not self._over:
                try:
                    self._path.touch()
                except OSError as error:
                    if not said:
                        logger.warning("ready_file_unwritable", path=str(self._path), error=str(error))
                    said = True
            await self._sleep(TOUCH_S)

    def end(self) -> None:
        """Remove the file: this process takes no more work."""
        self._over = True
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("ready_file_unwritable", path=str(self._path), error=str(error))
