"""Models by the names people give them, with the progress of downloads on a console."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from services.launcher.display import say
from services.launcher.models.progress import bar_per_file
from shared.model import model_source


def find(spec: str, option: str, console: Console) -> Path:
    """As `model_source.resolve`, with its progress on `console`.

    Raises `StartError` for files that are no whole model too, so that nothing is started for them.
    """
    with telling(console) as fetching:
        path = model_source.resolve(spec, option, lambda line: say(console, line), fetching=fetching)
    model_source.sizes(path, spec, option)
    return path


@contextmanager
def telling(console: Console) -> Iterator[model_source.Fetching]:
    """Shows the progress of downloads: a bar per file on a terminal, else a line for every tenth."""
    if not console.is_terminal:
        yield model_source.Tenths(lambda line: say(console, line))
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    progress = Progress(TextColumn("{task.description}"), *columns, console=console)
    with bar_per_file(progress, lambda file: escape(file.rpartition("/")[2])) as report:
        yield report
