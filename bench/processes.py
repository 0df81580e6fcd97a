"""What a process took: seconds of CPU and bytes of memory, as Linux's /proc tells (proc(5))."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KINDS: Final = {"VmRSS": "rss", "VmHWM": "peak_rss", "Pss": "pss"}


def cpu_s(pid: int) -> float:
    """User and system time so far, of all its threads; 0 where /proc is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process now, at its highest, and proportionally (`pss`); empty where /proc is not."""
    found = {}
    for file in ("status", "smaps_rollup"):
        try:
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in _KINDS:
                found[_KINDS[name]] = int(rest.split()[0]) * 1024
    return found
