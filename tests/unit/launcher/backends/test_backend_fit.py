"""What makes a backend fit, and what is said of GPUs that show."""

import errno
import shutil
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from services.launcher.backends import adding, archive, catalogue, fetching, registries, signs
from services.launcher.display import Display
from shared.errors import StartError
from shared.machine.devices import Device, choose, refuse
from shared.model import hub
from shared.model.download import Download
from shared.model.llama import library
from shared.model.llama.figures import Figures, difference

CPU = Device("CPU", "a CPU", "cpu", 10**9, 10**9)
VULKAN = Device("Vulkan0", "a card", "gpu", 10**9, 10**9)

OURS = Figures(
    version="0.25.3",
    operations=("NONE", "ADD", "MUL"),
    types=(("f32", 4, 1), ("q8_0", 34, 32)),
    tensor_overhead=368,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"version": "0.25.1"}, ""),
        ({"operations": ("NONE", "ADD")}, "2 operations, and this llama.cpp has 3"),
        ({"operations": ("NONE", "SUB", "MUL")}, "SUB as operation 1, and in this llama.cpp that is ADD"),
        ({"types": (("f32", 4, 1),)}, "1 types of numbers, and this llama.cpp has 2"),
        ({"types": (("f32", 4, 1), ("q4_0", 34, 32))}, "the type q4_0 where this llama.cpp has q8_0"),
        (
            {"types": (("f32", 4, 1), ("q8_0", 36, 32))},
            "q8_0 in 36 bytes for 32 values, and this llama.cpp in 34 for 32",
        ),
        ({"tensor_overhead": 400}, "tensors of 400 bytes, and this llama.cpp has 368"),
    ],
)
def test_a_backend_fits_unless_a_figure_differs(changes: dict[str, object], words: str) -> None:
    assert difference(msgspec.structs.replace(OURS, **changes), OURS) == words


@pytest.mark.parametrize(
    ("paths", "backend"),
    [
        ([], ""),
        (["/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"], ""),
        (["/dev/nvidia0"], "cuda"),
        (["/dev/nvidia0", "/dev/dri/renderD128"], "cuda"),
        (["/dev/dri/renderD129"], "vulkan"),
        (["/dev/kfd"], "vulkan"),
    ],
)
def test_signs_of_a_gpu_suggest_the_backend_that_suits_it(paths: list[str], backend: str) -> None:
    assert signs.suggested(paths) == backend


def test_a_gpu_that_no_backend_is_for_is_told_with_the_command() -> None:
    shown, offered = ["/dev/nvidia0"], ["cuda", "vulkan"]
    assert "`draftmesh backend add cuda` adds one" in signs.hint(shown, ["cpu"], offered)
    assert "docs/backends.md" in signs.hint(shown, ["cpu"], [])
    assert signs.hint(shown, ["cpu", "gpu"], offered) == ""
    assert signs.hint([], ["cpu"], offered) == ""


@pytest.mark.parametrize(
    ("backend", "paths", "words"),
    [
        ("cuda", [], "/dev/nvidia0 is missing"),
        ("cuda", ["/dev/nvidia0"], "NVIDIA's driver finds no card"),
        ("vulkan", [], "no Vulkan driver is installed"),
        ("vulkan", ["/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"], "GGML_VK_VISIBLE_DEVICES=0"),
        ("vulkan", ["/dev/dri/renderD128", "/usr/share/vulkan/icd.d/intel.json"], "group render"),
    ],
)
def test_a_backend_without_a_device_is_explained(backend: str, paths: list[str], words: str) -> None:
    assert words in signs.why_none(backend, paths)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("vulkan:0", "no such device; the backend vulkan is damaged; here: cpu; or auto"),
        ("Vulkan", "no such device; the backend vulkan is damaged; here: cpu; or auto"),
        ("cuda:0", "no such device; here: cpu; or auto; `draftmesh backend add cuda` may add it"),
        ("rocm:0", "no such device; here: cpu; or auto"),
    ],
)
def test_a_device_that_is_not_there_is_explained(wanted: str, words: str) -> None:
    with pytest.raises(StartError) as refused:
        refuse(wanted, [CPU], "--target-device", {"vulkan": "the backend vulkan is damaged"})
    assert str(refused.value).endswith(words)


def test_an_index_beyond_the_devices_needs_no_other_backend() -> None:
    with pytest.raises(StartError, match=r"vulkan:1: no such device; here: cpu, vulkan:0"):
        choose("vulkan:1", [CPU, VULKAN])


def test_every_package_is_pinned_and_brings_the_library_of_its_backend() -> None:
    for prebuilt in catalogue.PREBUILT["Linux x86_64"]:
        kept = [name for package in prebuilt.packages for name in package.members.values()]
        assert {f"libggml-{prebuilt.name}.so", "libggml-base.so"} <= set(kept)
        assert len(set(kept)) == len(kept)
        assert all(len(package.digest) == {"npm": 128, "pypi": 64}[package.registry] for package in prebuilt.packages)
    assert catalogue.offered("Linux aarch64") == {}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of backends of a machine for which Vulkan's can be added."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "this_system", lambda: "Linux x86_64")
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    monkeypatch.setattr(library, "backends", lambda: ["cpu"])
    return tmp_path / "data" / "draftmesh" / "backends"


def add() -> str:
    """Why `backend add vulkan` is refused."""
    with pytest.raises(StartError) as refused:
        adding.add("vulkan", None, Display(Console(quiet=True)))
    return str(refused.value)


def test_a_disk_without_room_is_told_before_anything_is_fetched(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(fetching, "fetch", lambda *_: pytest.fail("something was fetched"))
    assert add().startswith("backend add vulkan: 44.2 MB is needed; 10.0 MB is free at ")


def test_a_disk_that_gets_full_while_fetching_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/stub.incomplete")

    monkeypatch.setattr(registries, "address", lambda _: registries.DownloadAddress("http://127.0.0.1:1/x"))
    monkeypatch.setattr(Download, "run", full)
    assert add() == (
        "backend add vulkan: the disk is full at /somewhere/stub.incomplete; nothing was installed; free some space and"
        " try again (the download is kept)"
    )
    assert [path.name for path in here.iterdir()] == [".lock"]


def test_a_disk_that_gets_full_while_unpacking_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching, "fetch", lambda *_: here)
    monkeypatch.setattr(archive, "unpack", full)
    assert add().startswith("backend add vulkan: the disk is full; nothing was installed")
    assert [path.name for path in here.iterdir()] == [".lock"]
