"""The limits of control groups on this process: cores and memory, by its own group and every group around it; and how
often the kernel killed for memory in its own.

Reads both versions of Linux's control groups, as mounted in containers, pods and services; the tightest limit counts.
Without control groups there is no limit. `read` gives a file's text, so that tests need no kernel.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

Read = Callable[[str], str]

_MEMBERSHIP: Final = "/proc/self/cgroup"
_MOUNTS: Final = "/proc/self/mountinfo"


def read_file(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def cpu_quota(read: Read = read_file) -> tuple[float, str]:
    """Cores' worth of time that this process may use, and the folder of the group that has this limit.

    Infinity and "" without a limit.
    """
    quotas = [(math.inf, "")]
    for folder in _groups("", read):
        quota, _, period = read(f"{folder}/cpu.max").partition(" ")
        quotas += [(cores, folder) for cores in _quota(quota, period)]
    for folder in _groups("cpu", read):
        quota, period = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
        quotas += [(cores, folder) for cores in _quota(quota, period)]
    return min(quotas, key=lambda quota: quota[0])


def memory_left(read: Read = read_file) -> float:
    """Bytes that this process may still take; infinity without a limit. Unused file pages count as free."""
    left = [math.inf]
    for folder in _groups("", read):
        limit, used, idle = f"{folder}/memory.max", f"{folder}/memory.current", "inactive_file"
        left += _left(read(limit), read(used), read(f"{folder}/memory.stat"), idle)
    for folder in _groups("memory", read):
        limit, used = f"{folder}/memory.limit_in_bytes", f"{folder}/memory.usage_in_bytes"
        left += _left(read(limit), read(used), read(f"{folder}/memory.stat"), "total_inactive_file")
    return min(left)


def memory_kills(read: Read = read_file) -> int:
    """How many processes of this process's own group the kernel has killed because memory ran out; 0 if unknown."""
    own = next(_groups("", read), "")
    lines = read(f"{own}/memory.events").splitlines() if own else []
    return sum(_number(line.removeprefix("oom_kill ")) for line in lines if line.startswith("oom_kill "))


def _quota(quota: str, period: str) -> list[float]:
    amount, per = _number(quota), _number(period)
    return [amount / per] if amount > 0 and per > 0 else []


def _left(limit: str, used: str, statistics: str, idle: str) -> list[float]:
    allowed = _number(limit)
    if allowed < 0:
        return []
    reclaimable = next((_number(line.split()[1]) for line in statistics.splitlines() if line.startswith(f"{idle} ")), 0)
    return [max(0, allowed - max(0, _number(used) - reclaimable))]


def _number(text: str) -> int:
    """The number; -1 (no limit) for "max", for -1, and for anything that is not a number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else -1


def _groups(controller: str, read: Read) -> Iterator[str]:
    """The folders of our group and of those around it, innermost first; the controller "" is version 2's tree."""
    group = _own_group(controller, read(_MEMBERSHIP))
    mount = _mount(controller, read(_MOUNTS))
    if group is None or mount is None:
        return
    root, point = mount
    # In a namespace of its own a container sees a mount that begins at its group, or a group outside of the mount.
    inside = group.relative_to(root) if group.is_relative_to(root) and ".." not in group.parts else PurePosixPath()
    folder = PurePosixPath(point)
    yield from (str(folder / part) for part in (inside, *inside.parents))


def _own_group(controller: str, membership: str) -> PurePosixPath | None:
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") and (controller or number == "0"):
            return PurePosixPath(path)
    return None


def _mount(controller: str, mounts: str) -> tuple[PurePosixPath, str] | None:
    """The group at which the controller's mount begins, and the mount's folder."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if (kind[0] == "cgroup2" and not controller) or (kind[0] == "cgroup" and controller in kind[2].split(",")):
            return PurePosixPath(fields[3]), fields[4]
    return None
