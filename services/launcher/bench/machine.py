"""The machine of a measurement, with what explains the figures, and without names of hosts or users."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The client's machine. `memory_bytes` is 0 if the system does not say."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str


def look() -> Machine:
    """This machine."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        memory_bytes=_memory_bytes(),
        system=_system(),
        python=platform.python_version(),
    )


def _cpu() -> str:
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.SubprocessError):
            command = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    with suppress(OSError):
        for line in _CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _system() -> str:
    """The distribution and the kind of kernel, without the kernel's version, which may reveal its owner."""
    with suppress(OSError):
        named = platform.freedesktop_os_release().get("PRETTY_NAME")
        if named:
            return f"{named} ({platform.machine()})"
    return f"{platform.system()} {platform.release()} ({platform.machine()})"
