"""Other processes as /proc shows them."""

from pathlib import Path


def runs(pid: int) -> bool:
    """Whether the process still runs; nobody may be there to collect its exit status."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The processes that `pid` started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
