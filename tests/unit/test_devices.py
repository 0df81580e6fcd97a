"""Device names, automatic choices, tensor splits and the division of threads."""

import os
import sys
from dataclasses import dataclass

import pytest

from shared import devices
from shared.errors import StartError


@dataclass(frozen=True)
class Fake:
    name: str
    kind: str = "gpu"
    memory_free: int = 10_000_000_000
    description: str = "NVIDIA L4"
    memory_total: int = 24_000_000_000


CPU = Fake("CPU", "cpu")
SMALL = Fake("CUDA0", memory_free=8_000_000_000)
LARGE = Fake("CUDA1", memory_free=22_100_000_000)
INTEGRATED = Fake("Vulkan0", "igpu", memory_free=60_000_000_000)
BLAS = Fake("BLAS", "accel")


@pytest.mark.parametrize(
    ("ggml", "ours"),
    [
        ("CUDA0", "cuda:0"),
        ("ROCm0", "rocm:0"),
        ("HIP0", "rocm:0"),
        ("Vulkan0", "vulkan:0"),
        ("Metal", "metal"),
        ("MTL0", "metal"),
        ("RPC0", "rpc:0"),
        ("RPC[10.0.0.2:50052]", "rpc:0"),
        ("SYCL0", "sycl:0"),
    ],
)
def test_ggml_names_become_ours(ggml: str, ours: str) -> None:
    device = Fake(ggml)
    assert devices.choose(ours, [device, CPU]) is device
    assert devices.name_of(device, [CPU, device]) == ours


def test_a_kind_alone_means_its_first_device() -> None:
    assert devices.choose("cuda", [SMALL, LARGE, CPU]) is SMALL
    assert devices.choose("CUDA:1", [SMALL, LARGE, CPU]) is LARGE


def test_metal_may_carry_an_index() -> None:
    metal = Fake("Metal")
    assert devices.choose("metal:0", [metal, CPU]) is metal


def test_remote_devices_are_counted_in_order() -> None:
    remote = [Fake("RPC[a:1]"), Fake("RPC[b:1]")]
    assert devices.choose("rpc:1", [*remote, CPU]) is remote[1]


def test_a_library_that_only_helps_the_cpu_is_no_device() -> None:
    assert list(devices.named([BLAS, CPU])) == ["cpu"]


def test_an_absent_device_is_an_error_that_lists_what_is_there() -> None:
    with pytest.raises(StartError) as caught:
        devices.choose("cuda:2", [LARGE, CPU], "--target-device")
    assert str(caught.value) == (
        "--target-device cuda:2: no such device; here: cuda:0 (NVIDIA L4, 22.1 of 24.0 GB free), cpu; or auto"
    )


@pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "cuda:-1", "cuda:0:0"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(StartError):
        devices.choose(name, [SMALL, CPU])


def test_auto_takes_the_most_free_memory() -> None:
    assert devices.choose("auto", [SMALL, LARGE, CPU]) is LARGE


def test_auto_prefers_a_discrete_device() -> None:
    assert devices.choose("auto", [INTEGRATED, SMALL, CPU]) is SMALL


def test_auto_without_a_gpu_is_the_cpu() -> None:
    assert devices.choose("auto", [CPU]) is CPU


def test_a_draft_avoids_the_targets_device() -> None:
    assert devices.choose_draft("auto", [SMALL, LARGE, CPU], [LARGE]) is SMALL


def test_a_draft_goes_to_the_cpu_when_the_target_has_the_only_gpu() -> None:
    assert devices.choose_draft("auto", [LARGE, CPU], [LARGE]) is CPU


def test_drafts_spread_over_the_other_devices() -> None:
    third = Fake("CUDA2", memory_free=4_000_000_000)
    assert devices.choose_draft("auto", [SMALL, LARGE, third, CPU], [LARGE], [SMALL]) is third


def test_a_named_draft_device_is_taken_even_beside_the_target() -> None:
    assert devices.choose_draft("cuda:1", [SMALL, LARGE, CPU], [LARGE]) is LARGE


@pytest.mark.parametrize(
    ("cores", "target", "drafters", "expected"),
    [
        (2, True, 1, (1, [1])),
        (2, True, 0, (2, [])),
        (8, True, 1, (6, [2])),
        (16, True, 3, (12, [2, 1, 1])),
        (8, False, 1, (1, [8])),
        (8, False, 3, (1, [3, 3, 2])),
        (8, False, 0, (1, [])),
        (2, True, 5, (1, [1, 1, 1, 1, 1])),
        (1, True, 1, (1, [1])),
    ],
)
def test_threads_are_divided(cores: int, target: bool, drafters: int, expected: tuple[int, list[int]]) -> None:
    assert devices.divide_threads(cores, target, drafters) == expected


def test_this_machine_has_a_core() -> None:
    assert devices.available_cores() >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_available_memory_is_some_of_the_machine_s() -> None:
    assert 0 < devices.available_memory() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("text", "shares"), [("", ()), ("3,1", (3.0, 1.0)), (" 1 , 0.5", (1.0, 0.5)), ("0,1", (0.0, 1.0))]
)
def test_a_tensor_split_is_read(text: str, shares: tuple[float, ...]) -> None:
    assert devices.parse_tensor_split(text) == shares


@pytest.mark.parametrize("text", ["a", "3;1", "0,0", "1,-1", "nan", "inf,1", "1,"])
def test_a_bad_tensor_split_names_the_option_and_the_value(text: str) -> None:
    with pytest.raises(StartError) as caught:
        devices.parse_tensor_split(text)
    assert str(caught.value).startswith(f"--tensor-split {text}: ")
