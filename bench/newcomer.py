"""A newcomer's first minutes by the clock: `python -m bench.newcomer` times `git clone` to a drafted, faster answer.

A fresh clone in a temporary folder, a fresh virtual environment in it, and a cache of ours that is empty; only pip's
own cache is the user's. `--first up` times `make up` to the first token instead of `make demo` to its end. Everything
that it started is stopped, and the folder removed, whatever happens.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.programs import TimedProgram, TooSlowError
from services.launcher.fleet.ports import LOOPBACK, claim_embedded

ROOT: Final = Path(__file__).parents[1]
_LIMIT_S: Final = 1800.0  # with a compilation on a slow machine
_QUESTION: Final = {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 32, "stream": True}
_LLAMA: Final = ".venv/lib/python*/site-packages/llama_cpp/__init__.py"
_STAMP: Final = ".venv/.installed"  # what `make install` leaves when it is through
_BUILT: Final = "Successfully built"  # pip's words for what it compiled instead of taking it from its cache


class First(StrEnum):
    """What the newcomer types first."""

    DEMO = "demo"
    UP = "up"


def main(
    repository: Annotated[str, typer.Argument(help="What is cloned; by default this checkout.")] = str(ROOT),
    first: Annotated[First, typer.Option("--first", help="The target of make that is typed first.")] = First.DEMO,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Time a first start: clone, install, and the first answer."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="draftmesh-newcomer-") as folder:
        steps, lines = _first_start(repository, first, Path(folder))
    compiled = any(_BUILT in line and "llama" in line for line in lines)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of everything that was started and has ended
    cpu = used.ru_utime + used.ru_stime
    if as_json:
        found = {"seconds": steps, "cpu_seconds": cpu, "compiled": compiled, "cores": os.cpu_count(), "load": load}
        typer.echo(json.dumps(found | {"said": _verdict(lines)}, indent=2))
        return
    typer.echo("| step | seconds | since `git clone` |\n|---|---|---|")
    total = 0.0
    for step, seconds in steps.items():
        total += seconds
        typer.echo(f"| {step} | {seconds:.1f} | {total:.1f} |")
    typer.echo(f"\n{_verdict(lines)}")
    origin = "was compiled" if compiled else "came from a cache"
    typer.echo(f"{os.cpu_count()} cores, load {load:.1f} before; {cpu:.0f} s of CPU; llama-cpp-python {origin}")


def _verdict(lines: list[str]) -> str:
    return next((line for line in reversed(lines) if line.startswith("With drafts ")), "")


def _first_start(repository: str, first: First, folder: Path) -> tuple[dict[str, float], list[str]]:
    """Seconds by step, and what was printed."""
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
    arguments = f"--port {port} --redis-port {claim_embedded(0)}" if first is First.UP else ""
    with _make(first, arguments, checkout, folder) as made:
        made.wait(lambda: any(checkout.glob(_LLAMA)))
        reached("llama.cpp is installed")
        made.wait(lambda: (checkout / _STAMP).exists())
        reached("everything is installed")
        if first is First.DEMO:
            made.wait(lambda: any((folder / "cache").glob("pair-*/wide*.gguf")))
            reached("the demo's models are built")
            made.wait(lambda: made.said("> "))
            reached("its fleet is ready and has measured this machine")
            made.wait(lambda: made.said("with drafts ─"))
            reached("the plain answer")
            made.wait(lambda: made.said("With drafts "))
            reached("the drafted answer")
            made.wait_for_end(_LIMIT_S)
        else:
            made.wait(lambda: made.said("draftmesh is ready"))
            reached("it says that it is ready")
            _first_token(f"http://{LOOPBACK}:{port}/v1/chat/completions")
            reached("the first token of the first answer")
        return steps, [line for _, line in made.lines]


@contextmanager
def _make(first: First, arguments: str, checkout: Path, folder: Path) -> Iterator[TimedProgram]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DRAFTMESH_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment |= {
        "DRAFTMESH_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
    }
    command = ["make", first, f"PYTHON={sys.executable}", f"ARGS={arguments}"]
    program = TimedProgram(command, environment, _LIMIT_S, checkout)
    try:
        yield program
    finally:
        program.end()


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
