"""Progress bars for long work: building the pair, loading and measuring models."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from services.launcher.models.gguf_copy import Progress as Building

Stage = Callable[[str, int], Callable[[], None]]  # a name and a number of steps; call the result after each step


@contextmanager
def building(console: Console) -> Iterator[Building]:
    """A bar per file that `build_pair` writes; shows nothing if no file is missing."""
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


@contextmanager
def stages(console: Console) -> Iterator[Stage]:
    """A bar per stage of some work, gone when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:

        def begin(name: str, steps: int) -> Callable[[], None]:
            task = progress.add_task(name, total=steps)
            return lambda: progress.advance(task)

        yield begin
