"""How much of the processor other programs use, as Linux tells it; elsewhere unknown."""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STAT: Final = Path("/proc/stat")
# Others disturb only where the cores are short: nearly all of the time is used, and others use a notable part of it.
_IDLE: Final = 0.1
_OTHERS: Final = 0.15


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of processor time so far, summed over the cores of this process."""

    busy: float  # of all programs
    idle: float
    own: float  # of this process


def is_contended(before: CpuTime | None, after: CpuTime | None) -> bool:
    """Whether other programs took processor time that this one could have used between two readings."""
    if before is None or after is None:
        return False
    busy, idle, own = after.busy - before.busy, after.idle - before.idle, after.own - before.own
    total = busy + idle
    return total > 0 and idle / total < _IDLE and (busy - own) / total > _OTHERS


def read(stat: Path = STAT) -> CpuTime | None:
    """The time until now; None where the system does not tell it."""
    try:
        cores = os.sched_getaffinity(0)
        busy, idle = parse(stat.read_text(), cores, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return None
    return CpuTime(busy, idle, time.process_time())


def parse(text: str, cores: Collection[int], ticks: int) -> tuple[float, float]:
    """Busy and idle seconds of these cores from the text of `/proc/stat`. Raises `ValueError` if it has none."""
    busy = idle = 0
    found = False
    for line in text.splitlines():
        name, *counts = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            found = True
            user = [int(count) for count in counts[:8]]  # the rest, of guests, is part of these
            idle += user[3] + user[4]  # idle, and waiting for the disk
            busy += sum(user) - user[3] - user[4]
    if not found:
        raise ValueError("no times of these cores")
    return busy / ticks, idle / ticks
