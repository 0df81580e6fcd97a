"""One command with children: it runs until a signal, or until a child keeps failing, and leaves no child behind."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from services.launcher.display import Display
from services.launcher.fleet.supervisor import ChildFailed, Supervisor
from shared.errors import StartError
from shared.lossy import lossy
from shared.settings.command_line import BAD_OPTION

FAILED: Final = 1  # the status if a child keeps failing
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SupervisedRun:
    """Children with logs in `folder` and states on `display`; prints `farewell` at the end."""

    def __init__(self, folder: Path, display: Display, farewell: str) -> None:
        self._display = display
        self._farewell = farewell
        self._stop = asyncio.Event()
        self.supervisor = Supervisor(folder, display.state)

    async def run(self, live: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Do `live`, wait for a signal, stop the children: 0, or the exit status for a failed child."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for that
                loop.add_signal_handler(number, self._asked)
        code = 0
        try:
            async with asyncio.TaskGroup() as group:
                living = group.create_task(live(), name="session")
                await self._stop.wait()
                living.cancel()
        except* (ChildFailed, StartError) as failures:
            error = _first(failures)
            self._display.close()
            self._display.say(f"error: {error}", "red")
            code = error.exit_code if isinstance(error, ChildFailed) else BAD_OPTION
        finally:
            self._display.close()
            await self.supervisor.stop()
        if code != BAD_OPTION:  # an error in a command line is one line, and nothing ran
            self._display.say(self._farewell)
        return code

    def _asked(self) -> None:
        if self._stop.is_set():
            self.supervisor.hurry()
        self._stop.set()


def with_logs(run: Callable[[Path], int], kept: Callable[[Path], object]) -> int:
    """What `run` returns, given a folder for logs. Nothing that it prints can end it. Raises `StartError` without a
    place for the folder.

    After `FAILED` only the logs say what happened, so it keeps them and calls `kept` with the folder; else it removes
    them.
    """
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)
    try:
        folder = Path(tempfile.mkdtemp(prefix="draftmesh-"))
    except OSError as error:
        reason = f"no folder for logs can be made there ({error.strerror or error}); set TMPDIR to one with room"
        raise StartError("TMPDIR", os.environ.get("TMPDIR", "(not set)"), reason) from None
    code = 0
    try:
        code = run(folder)
    finally:
        if code != FAILED:
            shutil.rmtree(folder, ignore_errors=True)
    if code == FAILED:
        kept(folder)
    return code


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
