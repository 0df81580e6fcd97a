"""A newcomer's first minutes by the clock: `python -m bench.newcomer` times from `git clone` to the first token.

A fresh clone in a temporary folder, a fresh virtual environment in it, and a cache of ours that is empty; only pip's
own cache is the user's. Everything that it started is stopped, and the folder removed, whatever happens.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from services.launcher.ports import LOOPBACK, claim_embedded

ROOT: Final = Path(__file__).parents[1]
_LIMIT_S: Final = 1800.0  # with a compilation on a slow machine
_QUESTION: Final = {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 32, "stream": True}
_STAMP: Final = ".venv/.installed"  # what `make install` leaves when it is through
_BUILT: Final = "Successfully built"  # pip's words for what it compiled instead of taking it from its cache


class TooSlowError(RuntimeError):
    """Something did not happen in time, or a program ended; the message holds what it said."""


def main(
    repository: Annotated[str, typer.Argument(help="What is cloned; by default this checkout.")] = str(ROOT),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Time a first start: clone, install, ready, first token."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="draftmesh-newcomer-") as folder:
        steps, compiled = _first_start(repository, Path(folder))
    if as_json:
        typer.echo(
            json.dumps({"seconds": steps, "compiled": compiled, "cores": os.cpu_count(), "load": load}, indent=2)
        )
        return
    typer.echo("| step | seconds | since `git clone` |\n|---|---|---|")
    total = 0.0
    for step, seconds in steps.items():
        total += seconds
        typer.echo(f"| {step} | {seconds:.1f} | {total:.1f} |")
    typer.echo(f"\n{os.cpu_count()} cores, load {load:.1f} before; llama-cpp-python {_origin(compiled)}")


def _origin(compiled: bool) -> str:
    return "was compiled" if compiled else "came from pip's cache"


def _first_start(repository: str, folder: Path) -> tuple[dict[str, float], bool]:
    """Seconds by step, and whether llama-cpp-python was compiled."""
    checkout = folder / "draftmesh"
    steps: dict[str, float] = {}
    began = time.monotonic()

    def reached(step: str) -> None:
        nonlocal began
        now = time.monotonic()
        steps[step], began = now - began, now

    subprocess.run(["git", "clone", "--quiet", repository, str(checkout)], check=True, timeout=_LIMIT_S)
    reached("`git clone`")
    port = claim_embedded(0)
    with _make_up(checkout, folder, port) as up:
        up.wait_for(lambda: (checkout / _STAMP).exists())
        reached("`make up` has installed everything")
        up.wait_for(lambda: any(line.startswith("draftmesh is ready") for line in up.lines))
        reached("it says that it is ready")
        _first_token(f"http://{LOOPBACK}:{port}/v1/chat/completions")
        reached("the first token of the first answer")
        return steps, any(_BUILT in line and "llama" in line for line in up.lines)


class _Program:
    """A running `make up` and the lines that it printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        self._reader = threading.Thread(target=self._read, name="lines", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + _LIMIT_S
        while not condition():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise TooSlowError("\n".join(self.lines[-20:]))
            time.sleep(0.02)


@contextmanager
def _make_up(checkout: Path, folder: Path, port: int) -> Iterator[_Program]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DRAFTMESH_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment |= {
        "DRAFTMESH_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    arguments = f"--port {port} --redis-port {claim_embedded(0)}"
    process = subprocess.Popen(
        ["make", "up", f"PYTHON={sys.executable}", f"ARGS={arguments}"],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield _Program(process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C on its terminal would; what does not end is killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _first_token(url: str) -> None:
    """Return when the first piece of text of an answer arrives."""
    request = urllib.request.Request(url, json.dumps(_QUESTION).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_LIMIT_S) as response:
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                return
    raise TooSlowError("the answer held no text")


if __name__ == "__main__":
    typer.run(main)
