"""Commands as processes of their own that start in a moment: each is forked from one that has imported the most.

Arguments, environment, standard streams, signals and exit statuses are those of a command that was typed. Only the
interpreter's start and the imports are shared.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from tests.patience import PROCESS_S

_FORKING: Final = get_context("forkserver")
# What reads its environment when it is imported, as huggingface_hub does, is not among them.
_FORKING.set_forkserver_preload(["services.launcher.cli", "shared.model.llama.model", "gguf", "aiohttp", "pydantic"])


class Done(NamedTuple):
    """How a command ended and what it said."""

    code: int
    output: str
    errors: str


class Command:
    """A running command. Made by `start`."""

    def __init__(self, process: Any, output: asyncio.StreamReader, errors: asyncio.StreamReader) -> None:
        self.errors = errors
        self._process = process
        self._output = output

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self._process.pid, number)

    async def end(self) -> Done:
        """How it ended, and what of its words was not read yet. Raises `TimeoutError` for one that goes on."""
        async with asyncio.timeout(PROCESS_S):
            output, errors = await asyncio.gather(self._output.read(), self.errors.read())
        await asyncio.to_thread(self._process.join, PROCESS_S)
        code = self._process.exitcode
        self._process.close()
        return Done(code, output.decode(), errors.decode())


async def start(main: Callable[[], object], arguments: tuple[str, ...], environment: Mapping[str, str]) -> Command:
    """Start `main` with the command line's `arguments` and these variables only."""
    (output, its_output), (errors, its_errors) = _FORKING.Pipe(duplex=False), _FORKING.Pipe(duplex=False)
    process = _FORKING.Process(
        target=_run, args=(main, arguments, dict(environment), its_output, its_errors), daemon=True
    )
    process.start()
    its_output.close()
    its_errors.close()
    return Command(process, await _reader(output), await _reader(errors))


def _run(
    main: Callable[[], object],
    arguments: tuple[str, ...],
    environment: dict[str, str],
    output: "Connection[Any, Any]",
    errors: "Connection[Any, Any]",
) -> None:
    for number, pipe in ((1, output), (2, errors)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["draftmesh", *arguments]
    main()


async def _reader(pipe: "Connection[Any, Any]") -> asyncio.StreamReader:
    """Takes over the reading end of a pipe, and closes it at the end of what is read."""
    file = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
    pipe.close()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader
