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
    TimeElapsedColumn,
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
    with bar_per_file(progress) as report:
        yield report


@contextmanager
def bar_per_file(progress: Progress, named: Callable[[str], str] = str) -> Iterator[Building]:
    """Shows a bar for each file of which it is told, from the first report on: without a report it shows nothing."""
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, total: int) -> None:
        progress.start()
        if file not in tasks:
            # The part that was here before does not count for the speed.
            tasks[file] = progress.add_task(named(file), total=total, completed=done)
        progress.update(tasks[file], completed=done)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()


@contextmanager
def counted(console: Console, total: int, *, transient: bool = False) -> Iterator[Callable[..., None]]:
    """A bar of `total` steps: call the result with what is being done, and with how many steps that completes."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, transient=transient) as progress:
        task = progress.add_task("", total=total)

        def tell(name: str | None = None, steps: int = 0) -> None:
            progress.update(task, advance=steps, description=name)

        yield tell


@contextmanager
def stages(console: Console) -> Iterator[Stage]:
    """A bar per stage of some work, gone when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:

        def begin(name: str, steps: int) -> Callable[[], None]:
            task = progress.add_task(name, total=steps)
            return lambda: progress.advance(task)

        yield begin
