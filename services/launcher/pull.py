"""`draftmesh pull`: models from the hub to this machine, before anything needs them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from shared import hub, models
from shared.errors import StartError

FAILED: Final = 1
_OPTION: Final = "MODEL"  # the command's argument, by which errors name it


def run(specs: Sequence[str]) -> int:
    """Fetch each of `specs` and print its path on standard output: 0, or 1 if one could not be had.

    What is done is told on standard error. Raises `StartError`, before anything is fetched, for a name that can mean
    no model, and where the network is forbidden.
    """
    if hub.is_offline():
        raise StartError("pull", "--offline", "models come over the network; `draftmesh models` lists those here")
    for spec in specs:
        models.check(spec, _OPTION)
    console = Console(stderr=True, highlight=False)
    code = 0
    for spec in dict.fromkeys(specs):
        try:
            with _bars(console) as fetching:
                path = models.resolve(spec, _OPTION, lambda line: _say(console, line), fetching=fetching)
        except StartError as error:
            _say(console, f"error: {error}", "red")
            code = FAILED
        except KeyboardInterrupt:
            _say(console, "stopped; what has come is kept, and the same command goes on from there")
            raise
        else:
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
    return code


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar per file on a terminal; elsewhere None, and lines are said instead."""
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:

        def report(file: str, done: int, size: int) -> None:
            if file not in tasks:
                # What was here before says nothing about the speed.
                tasks[file] = progress.add_task(escape(file.rpartition("/")[2]), total=size, completed=done)
            progress.update(tasks[file], completed=done)

        yield report
