"""Models by the names people give them, with the progress of downloads on a console."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

from shared.model import model_source


def find(spec: str, option: str, console: Console) -> Path:
    """As `model_source.resolve`, with its progress on `console`."""
    with telling(console) as fetching:
        return model_source.resolve(spec, option, lambda line: _say(console, line), fetching=fetching)


@contextmanager
def telling(console: Console) -> Iterator[model_source.Fetching]:
    """Shows the progress of downloads: a bar per file on a terminal, else a line for every tenth."""
    if not console.is_terminal:
        yield model_source.Tenths(lambda line: _say(console, line))
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    progress = Progress(TextColumn("{task.description}"), *columns, console=console)
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, size: int) -> None:
        progress.start()  # only now, because most models are here already and need no bar
        if file not in tasks:
            # The part that was here before does not count for the speed.
            tasks[file] = progress.add_task(escape(file.rpartition("/")[2]), total=size, completed=done)
        progress.update(tasks[file], completed=done)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
