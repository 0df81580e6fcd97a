"""`draftmesh logs`: shows the logs of an `up`'s processes, merged by time."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from services.launcher.facts import run_file
from services.launcher.look import log_line
from services.launcher.look.log_line import LogLine
from services.launcher.look.log_reader import LogReader, names
from shared.errors import StartError
from shared.settings.options import Level

_POLL_S: Final = 0.25  # soon enough for eyes
NONE: Final = (
    "no logs: no `up` of this user runs on this machine, and none ended badly;"
    " services that systemd runs log to its journal: journalctl -u 'draftmesh-*'"
)


def run(
    name: str,
    up: int | None,
    *,
    follow: bool,
    count: int,
    level: Level,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Print and, if asked to, follow: 0, or 1 if there are no logs.

    `name` is the beginning of the processes' names, `up` the port of the `up` that is meant. Raises `StartError` for a
    name that no process has. Following ends with the `up`.
    """
    living = run_file.chosen(up)
    found = living or run_file.last_dead()
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    if found is None:
        errors.print(NONE, markup=False)
        return 1
    if living is None:
        errors.print(f"no `up` runs; this is what the last one that ended badly left (pid {found.pid})", style="dim")
    folder = Path(found.logs)
    processes = _matching(names(folder), name)
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    width = max(map(len, processes), default=0)
    logs = LogReader(folder, name, level, found.started)
    show(console, logs.read(count), width, as_json)
    alive = follow and living is not None
    while alive:
        sleep(_POLL_S)
        alive = found in run_file.living()
        show(console, logs.read(), width, as_json)
    return 0


def show(console: Console, lines: Sequence[LogLine], width: int, json: bool) -> None:
    """Print each line; `width` columns are for the names of processes."""
    for line in lines:
        if json:
            console.out(log_line.as_json(line), highlight=False)
        else:
            console.print(log_line.pretty(line, width))


def _matching(known: Sequence[str], beginning: str) -> list[str]:
    matching = [name for name in known if name.startswith(beginning)]
    if beginning and not matching:
        raise StartError("NAME", beginning, f"no process has this name; there are {', '.join(known) or 'none yet'}")
    return matching
