"""Runs a program to its end, or to the end of its time, and leaves nothing of it behind."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended: `status` is None if its time was over."""

    status: int | None
    output: str
    errors: str
    seconds: float


async def run(command: Sequence[str], *, environment: Mapping[str, str], folder: Path, timeout_s: float) -> Done:
    """Run `command` in `folder` without input. Its whole session is killed at the end. Raises `FileNotFoundError`."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    reading = asyncio.ensure_future(process.communicate())
    finished, _ = await asyncio.wait([reading], timeout=timeout_s)
    status = process.returncode if finished else None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # clients leave helpers behind
    output, errors = await reading
    return Done(status, output.decode(errors="replace"), errors.decode(errors="replace"), time.monotonic() - started)
