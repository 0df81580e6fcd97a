"""Runs a part in a process of its own, which a driver may crash or hang without taking the check along.

Needs Python's standard library only.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.device.schedule import Figures, Part, PartFailed

ROOT: Final = Path(__file__).parents[2]
_LOG_LINES: Final = 20


def attempt(
    part: Part,
    figures: Figures,
    seconds: float,
    wishes: Mapping[str, Any],
    environment: Mapping[str, str],
    command: tuple[str, ...] = (sys.executable, "-m", "bench.device.parts"),
) -> dict[str, Any]:
    """What `part` found. It is told `wishes`, earlier `figures` and its time. Raises `PartFailed`.

    The child reads one JSON object from standard input and writes one to the file that its last argument names.
    """
    told = json.dumps({"wishes": dict(wishes), "figures": figures, "seconds": seconds})
    with tempfile.TemporaryDirectory(prefix="draftmesh-part-") as folder:
        answer, log = Path(folder) / "figures.json", Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, part.name, str(answer)],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that all of it can be ended at once
            )
            with process:
                status = _ended(process, told.encode(), seconds)
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-_LOG_LINES:]
        if status is None:
            raise PartFailed(f"it did not end within {seconds:.0f} s", lines)
        if status:
            raise PartFailed(_reason(status, lines), lines)
        try:
            found: dict[str, Any] = json.loads(answer.read_text())
        except (OSError, ValueError):
            raise PartFailed("it ended without an answer", lines) from None
        return found


def _ended(process: subprocess.Popen[bytes], told: bytes, seconds: float) -> int | None:
    """The exit status, or None for a process that had to be killed after `seconds`. It is gone in any case."""
    try:
        process.communicate(told, timeout=seconds)
        return process.returncode
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _reason(status: int, lines: list[str]) -> str:
    if status < 0:
        return f"it was ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return (errors or lines or [f"it ended with status {status} and said nothing"])[-1]
