"""A second machine's first minute, by the clock: `python -m bench.firstrun` times from its shell to its first token.

Two network namespaces stand for two machines. The first runs `draftmesh up --lan` and asks short questions one after
the other; on the second `draftmesh join` is typed, with the printed address or found by zeroconf. Needs root; leaves
neither namespace nor process behind.
"""

import itertools
import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bench.machines import machines, on_machine
from bench.programs import TimedProgram
from services.launcher.fleet.child import service_command

LIMIT_S: Final = 150.0  # for each thing that is waited for
_DRAFTER: Final = "drafter-spare@second"  # with the name of the token that `up` makes, and of its own
_QUESTION: Final = "What is the number {} good for?"  # each time another one, or lookup would know the answer
_TOKENS: Final = 12  # of one answer; the time of the first token is that of its answer's end


@dataclass(slots=True)
class Measured:
    """Seconds from the moment at which `join` was typed, unless said otherwise."""

    apart_ms: float  # the round trip between the machines
    by: str  # "address" or "zeroconf"
    lines: list[tuple[float, str]] = field(default_factory=list)  # what `join` said, and when
    first_token_s: float = 0.0  # the end of the first answer in which a guess of the second machine was accepted
    rejoined_s: float = 0.0  # the same after `up` was restarted, counted from when that was ready; 0: not tried
    left_s: float = 0.0  # from Ctrl-C to the end of the process


class Asker:
    """Asks on the first machine, one short question after the other, until it is stopped."""

    def __init__(self, machine: str, url: str, key: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.helped = 0  # answers in which a guess of the second machine was accepted
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: on_machine(machine, self._ask), daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        for number in itertools.count(1):
            if self._stop.is_set():
                return
            body = {
                "messages": [{"role": "user", "content": _QUESTION.format(number)}],
                "max_tokens": _TOKENS,
                "seed": number,
                "speculative": True,
            }
            request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers)
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    answer: dict[str, Any] = json.load(response)
            except (urllib.error.URLError, OSError):
                self._stop.wait(0.2)  # the fleet is being restarted
                continue
            sources = answer["speculative"]["by_source"]
            self.helped += _DRAFTER in sources

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        self._thread.join(35)


def measure(
    apart_ms: float, by: str, draft_model: str = "default", restart: bool = False, target_model: str = "default"
) -> Measured:
    """One run. Raises `NotPermittedError` or `TooSlowError`."""
    measured = Measured(apart_ms, by)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="draftmesh-firstrun-")))
        first, second = stack.enter_context(machines(apart_ms))
        environment = {**plain, "XDG_STATE_HOME": str(folder)}
        up = _up(stack, first, target_model, environment)
        asker = _asker(stack, first, up)
        command = up.line("on a spare machine: draftmesh ").split()
        token = up.line("its token, for which join asks: ").split()[0]
        arguments = ["join", "--draft-model", draft_model, "--threads", "1", "--ctx", "512", "--parallel", "2"]
        arguments += [] if by == "zeroconf" else command[1:2]
        joined = _typed(stack, second, arguments, {**plain, "DRAFTMESH_NAME": "second", "DRAFTMESH_TOKEN": token})
        measured.first_token_s = joined.wait(lambda: asker.helped > 0)
        model = joined.line("vocabulary matches ").partition(" ")[0]
        joined.line(f"{model}: adds ")
        if restart:
            asker.stop()
            up.interrupt()
            up = _up(stack, first, target_model, environment)
            up.line("on a spare machine: ")
            began = time.monotonic() - joined.began
            asker = _asker(stack, first, up)
            measured.rejoined_s = joined.wait(lambda: asker.helped > 0) - began
        measured.left_s = joined.interrupt()
        measured.lines = joined.lines
    return measured


def _typed(stack: ExitStack, machine: str, arguments: Sequence[str], environment: Mapping[str, str]) -> TimedProgram:
    command = ["ip", "netns", "exec", machine, *service_command("launcher"), *arguments]
    program = TimedProgram(command, environment, LIMIT_S)
    stack.callback(program.end)
    return program


def _up(stack: ExitStack, machine: str, target_model: str, environment: Mapping[str, str]) -> TimedProgram:
    options = ("--lan", "--target-model", target_model, "--threads", "1", "--ctx", "512", "--parallel", "2")
    return _typed(stack, machine, ("up", *options), environment)


def _asker(stack: ExitStack, machine: str, up: TimedProgram) -> Asker:
    url = up.line("draftmesh is ready: ").removesuffix("/v1")
    asker = Asker(machine, url, up.line("API key, made for this start: "))
    stack.callback(asker.stop)
    return asker


def main(
    apart: Annotated[list[float], typer.Option(help="Milliseconds of a round trip between the machines.")] = [1, 20],  # noqa: B006
    draft_model: Annotated[str, typer.Option(help="What the second machine drafts with.")] = "default",
    restart: Annotated[bool, typer.Option(help="Also restart the fleet while the second machine is there.")] = True,
    out: Annotated[Path | None, typer.Option(help="Write the measurements as JSON.")] = None,
) -> None:
    """Print, for each distance and way to find the fleet, what the second machine said, and when."""
    runs = []
    for apart_ms in apart:
        for by in ("address", "zeroconf"):
            run = measure(apart_ms, by, draft_model, restart)
            runs.append(asdict(run))
            sys.stdout.write(f"{apart_ms:g} ms apart, by {by}\n")
            sys.stdout.writelines(f"  {when:6.2f} s  {line}\n" for when, line in run.lines)
            sys.stdout.write(
                f"  first accepted token after {run.first_token_s:.2f} s, after a restart of the fleet"
                f" {run.rejoined_s:.2f} s, left within {run.left_s:.2f} s\n"
            )
            sys.stdout.flush()
    if out:
        out.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
