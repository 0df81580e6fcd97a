"""Progress bars for what a newcomer waits for: building the pair."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from services.launcher import pair


@contextmanager
def building(console: Console) -> Iterator[pair.Progress]:
    """A bar per file that `build_pair` writes; shows nothing when nothing is missing."""
    progress = Progress(
        TextColumn("{task.description:<16}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console
    )
    tasks: dict[str, TaskID] = {}

    def report(name: str, done: int, total: int) -> None:
        progress.start()
        if name not in tasks:
            tasks[name] = progress.add_task(name, total=total)
        progress.update(tasks[name], completed=done)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()
