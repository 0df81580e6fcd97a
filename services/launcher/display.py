"""Shows what `up` is doing, on standard error: a table that changes in place on a terminal, plain lines elsewhere."""

from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is, however long."""
    console.print(Text(line, style=style), soft_wrap=True)


class Display:
    """States by process name. Lines printed while the table is shown appear above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._states: dict[str, str] = {}
        # No thread may refresh it: children are forked from this process.
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    @classmethod
    def on_stderr(cls) -> Self:
        return cls(Console(stderr=True, highlight=False))

    def open(self) -> None:
        """Show the table from now on."""
        if self._live:
            self._live.start()

    def close(self) -> None:
        """Leave the table as it is; later states become lines."""
        if self._live:
            self._live.stop()
            self._live = None

    def say(self, line: str, style: str = "") -> None:
        """Print a line."""
        say(self.console, line, style)

    def state(self, name: str, state: str) -> None:
        """A process changed its state."""
        self._states[name] = state
        if self._live and "died" not in state:
            self._live.update(self._table(), refresh=True)
        else:
            self.say(f"{name}: {state}", "red" if "died" in state or state == "killed" else "")

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, state in self._states.items():
            table.add_row(Text(name, style="bold"), Text(state, style="green" if state == "ready" else "yellow"))
        return table
