"""What a process took: seconds of CPU and bytes of memory, as Linux's /proc tells (proc(5))."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KINDS: Final = {"VmRSS": "rss", "VmHWM": "peak_rss", "Pss": "pss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process held `at_s` seconds: bytes of its own and of files that it maps, threads and open descriptors."""

    at_s: float
    anonymous: int
    files: int
    threads: int
    descriptors: int


def cpu_s(pid: int) -> float:
    """User and system time so far, of all its threads; 0 where /proc is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def delayed_s(pid: int) -> float:
    """How long threads that wanted to run waited for a core so far; 0 where the kernel does not count it."""
    waited = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            waited += int((thread / "schedstat").read_text().split()[1])
    except OSError:
        return 0.0
    return waited / 1e9


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


def held(pid: int, at_s: float) -> Held:
    """What the process holds now. Raises `OSError` where it has ended."""
    lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    told = {name: rest.split() for name, _, rest in lines}
    return Held(
        at_s=at_s,
        anonymous=int(told["RssAnon"][0]) * 1024,
        files=int(told["RssFile"][0]) * 1024,
        threads=int(told["Threads"][0]),
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
    )
