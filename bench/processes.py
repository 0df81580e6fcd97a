"""What a process took: seconds of CPU and resident bytes, as Linux's /proc tells (proc(5))."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """User and system time so far, of all its threads; 0 where /proc is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory that is in RAM now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
