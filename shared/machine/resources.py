"""What the system reports about this machine: its identity, and the cores and the memory that this process may use."""

import math
import os
import re
import shutil
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from shared.machine import cgroups

# The same for all processes under one kernel, containers included, and new after every boot.
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_ROOM: Final = 4096  # bytes; a disk gives out its room in blocks


@cache
def identity() -> str:
    """The machine's identity: the id of its boot if there is one, else its name."""
    return cgroups.read_file(_BOOT).strip() or socket.gethostname()


def cores() -> frozenset[int]:
    """The cores that this process may run on, by number."""
    affinity = getattr(os, "sched_getaffinity", None)
    return frozenset(affinity(0)) if affinity else frozenset(range(os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class Quota:
    """Cores' worth of time that the processes of a control group may use together, rounded up.

    `group` names the group, the same in every container; "" and `sys.maxsize` cores are no limit.
    """

    cores: int = sys.maxsize
    group: str = ""


def quota() -> Quota:
    """The tightest limit on this process."""
    found, folder = cgroups.cpu_quota()
    if math.isinf(found):
        return Quota()
    with suppress(OSError):
        return Quota(max(1, math.ceil(found)), str(Path(folder).stat().st_ino))
    return Quota()


def available_cores() -> int:
    """How many cores this process may use: those it may run on, and no more than its time allows."""
    return min(len(cores()), quota().cores)


def disk_full(folder: Path) -> bool:
    """Whether the disk that holds `folder` has no room for a line; False if the system does not say."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free < _ROOM
    return False


def available_memory() -> int:
    """Bytes that processes may still take without swapping, if the system says so, as Linux does."""
    left = cgroups.memory_left()
    match = re.search(r"^MemAvailable:\s+(\d+) kB", cgroups.read_file("/proc/meminfo"), re.MULTILINE)
    amounts = [sys.maxsize if math.isinf(left) else int(left), int(match[1]) * 1024 if match else sys.maxsize]
    return min(amounts)
