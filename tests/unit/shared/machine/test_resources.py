"""Limits of control groups, from the files that the kernel shows in containers, pods and services."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.machine import cgroups, resources

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def files(texts: dict[str, str]) -> Callable[[str], str]:
    return lambda path: texts.get(path, "")


def proc(membership: str, mounts: str) -> dict[str, str]:
    return {"/proc/self/cgroup": membership, "/proc/self/mountinfo": mounts}


def test_a_container_with_a_namespace_of_its_own_sees_its_limits_at_the_mount() -> None:
    read = files(proc("0::/\n", V2) | {"/sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert cgroups.cpu_quota(read) == (1.5, "/sys/fs/cgroup")


def test_no_limit_is_infinite() -> None:
    read = files(
        proc("0::/a\n", V2) | {"/sys/fs/cgroup/a/cpu.max": "max 100000\n", "/sys/fs/cgroup/a/memory.max": "max"}
    )
    assert cgroups.cpu_quota(read) == (math.inf, "")
    assert cgroups.memory_left(read) == math.inf
    assert cgroups.cpu_quota(files({})) == (math.inf, ""), "no control groups at all"


def test_the_tightest_limit_on_the_way_up_counts() -> None:
    folder = "/sys/fs/cgroup/system.slice"
    read = files(
        proc("0::/system.slice/draftmesh.service/inner\n", V2)
        | {
            f"{folder}/draftmesh.service/inner/cpu.max": "800000 100000",
            f"{folder}/draftmesh.service/cpu.max": "200000 100000",
            f"{folder}/cpu.max": "max 100000",
            f"{folder}/draftmesh.service/memory.max": "8000",
            f"{folder}/draftmesh.service/memory.current": "1000",
            f"{folder}/memory.max": "9000",
            f"{folder}/memory.current": "7000",
            f"{folder}/memory.stat": "anon 3000\ninactive_file 1500\nactive_file 2500\n",
        }
    )
    assert cgroups.cpu_quota(read) == (2.0, f"{folder}/draftmesh.service")
    assert cgroups.memory_left(read) == 9000 - (7000 - 1500)


def test_version_1_in_a_container_that_sees_the_hosts_paths() -> None:
    """Docker without a namespace: the path is the host's, and the mount begins at it."""
    membership = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/system.slice/containerd.service\n"
    read = files(
        proc(membership, V1.format(root="/docker/abc"))
        | {
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": "3000\n",
            "/sys/fs/cgroup/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 500\n",
        }
    )
    assert cgroups.cpu_quota(read) == (2.5, "/sys/fs/cgroup/cpu,cpuacct")
    assert cgroups.memory_left(read) == 1500


def test_version_1_on_the_host_walks_up_its_own_tree() -> None:
    read = files(
        proc("3:cpu,cpuacct:/pods/a/b\n", V1.format(root="/"))
        | {
            "/sys/fs/cgroup/cpu,cpuacct/pods/a/b/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/pods/a/b/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.cfs_quota_us": "300000\n",
            "/sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.cfs_period_us": "100000\n",
        }
    )
    assert cgroups.cpu_quota(read) == (3.0, "/sys/fs/cgroup/cpu,cpuacct/pods/a")


def test_a_group_outside_of_the_mount_is_the_mount() -> None:
    read = files(proc("0::/../../other\n", V2) | {"/sys/fs/cgroup/cpu.max": "50000 100000"})
    assert cgroups.cpu_quota(read) == (0.5, "/sys/fs/cgroup")


@pytest.mark.parametrize("text", ["", "x", "max", "100000", "100000 0", "-5 100000", "1 2 3"])
def test_what_cannot_be_read_is_no_limit(text: str) -> None:
    assert cgroups.cpu_quota(files(proc("0::/\n", V2) | {"/sys/fs/cgroup/cpu.max": text})) == (math.inf, "")


def test_more_in_use_than_allowed_leaves_nothing() -> None:
    read = files(proc("0::/\n", V2) | {"/sys/fs/cgroup/memory.max": "10", "/sys/fs/cgroup/memory.current": "20"})
    assert cgroups.memory_left(read) == 0


def test_part_of_a_core_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("group"))
    monkeypatch.setattr(cgroups, "cpu_quota", lambda: (0.25, folder))
    assert resources.quota() == resources.Quota(1, str(os.stat(folder).st_ino))
    assert resources.available_cores() == 1


def test_this_machine_has_a_core_and_a_name() -> None:
    assert resources.available_cores() >= 1
    assert resources.identity()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_available_memory_is_some_of_the_machine_s() -> None:
    assert 0 < resources.available_memory() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_kills_for_memory_are_counted_in_the_own_group() -> None:
    events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"
    read = files(proc("0::/a\n", V2) | {"/sys/fs/cgroup/a/memory.events": events})
    assert cgroups.memory_kills(read) == 2
    assert cgroups.memory_kills(files({})) == 0, "no control groups at all"


def test_a_disk_is_full_when_no_block_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not resources.disk_full(tmp_path / "gone"), "nothing is known about it"
    for free, full in ((0, True), (4095, True), (1 << 20, False)):
        usage = SimpleNamespace(total=1 << 30, used=0, free=free)
        monkeypatch.setattr("shared.machine.resources.shutil.disk_usage", lambda folder, usage=usage: usage)
        assert resources.disk_full(tmp_path) is full
