"""Device names, automatic choices, cards that two backends list, and tensor splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import StartError
from shared.machine import devices
from shared.machine.devices import Device


def fake(
    name: str,
    kind: str = "gpu",
    memory_free: int = 10_000_000_000,
    description: str = "NVIDIA L4",
    memory_total: int = 24_000_000_000,
    id: str = "",
) -> Device:
    return Device(name, description, kind, memory_free, memory_total, id)


CPU = fake("CPU", "cpu")
SMALL = fake("CUDA0", memory_free=8_000_000_000)
LARGE = fake("CUDA1", memory_free=22_100_000_000)
INTEGRATED = fake("Vulkan0", "igpu", memory_free=60_000_000_000)
BLAS = fake("BLAS", "accel")


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
    device = fake(ggml)
    assert devices.choose(ours, [device, CPU]) is device
    assert devices.name_of(device, [CPU, device]) == ours


def test_a_kind_alone_means_its_first_device() -> None:
    assert devices.choose("cuda", [SMALL, LARGE, CPU]) is SMALL
    assert devices.choose("CUDA:1", [SMALL, LARGE, CPU]) is LARGE


def test_metal_may_carry_an_index() -> None:
    metal = fake("Metal")
    assert devices.choose("metal:0", [metal, CPU]) is metal


def test_remote_devices_are_counted_in_order() -> None:
    remote = [fake("RPC[a:1]"), fake("RPC[b:1]")]
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
    third = fake("CUDA2", memory_free=4_000_000_000)
    assert devices.choose_draft("auto", [SMALL, LARGE, third, CPU], [LARGE], [SMALL]) is third


def test_a_target_that_is_divided_keeps_drafts_off_all_its_devices() -> None:
    third = fake("CUDA2", memory_free=4_000_000_000)
    assert devices.choose_draft("auto", [SMALL, LARGE, third, CPU], [SMALL, LARGE]) is third


def test_a_named_draft_device_is_taken_even_beside_the_target() -> None:
    assert devices.choose_draft("cuda:1", [SMALL, LARGE, CPU], [LARGE]) is LARGE


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


# ---------------------------------------------------------------- one card, several backends

PLACED = fake("CUDA0", id="0000:01:00.0", memory_free=22_000_000_000)
AGAIN = fake("Vulkan0", id="0000:01:00.0", description="NVIDIA L4 (driver)", memory_total=25_769_803_776)
OTHER = fake("Vulkan1", id="0000:C1:00.0", description="AMD Radeon", memory_free=8_000_000_000)


def test_the_place_tells_that_two_devices_are_one_card() -> None:
    assert devices.same_card(PLACED, AGAIN)
    assert not devices.same_card(PLACED, OTHER)
    assert not devices.same_card(AGAIN, OTHER)
    assert devices.same_card(OTHER, fake("ROCm0", id="0000:c1:00.0", description="gfx1100"))


def test_without_a_place_description_and_memory_tell_across_backends() -> None:
    cuda = fake("CUDA0", memory_total=23_700_000_000)
    assert devices.same_card(cuda, fake("Vulkan3", memory_total=24_500_000_000))
    assert not devices.same_card(cuda, fake("Vulkan0", memory_total=48_000_000_000)), "a larger card of that name"
    assert not devices.same_card(cuda, fake("Vulkan0", description="AMD Radeon"))
    assert devices.same_card(cuda, fake("Vulkan0", id="0000:01:00.0")), "only one of them knows the place"


def test_within_a_backend_its_own_name_tells() -> None:
    assert not devices.same_card(SMALL, LARGE), "equal cards are two cards"
    assert devices.same_card(SMALL, fake("CUDA0", memory_free=1)), "as another process lists it"


def test_neither_the_cpu_nor_what_helps_it_is_a_card() -> None:
    assert not devices.same_card(CPU, CPU)
    assert not devices.same_card(BLAS, BLAS)


def test_a_card_counts_once_by_its_makers_backend_and_both_names_stay_good() -> None:
    present = [AGAIN, OTHER, PLACED, CPU]
    assert devices.distinct(present) == [OTHER, PLACED, CPU]
    assert devices.by_preference(present) == [PLACED, OTHER]
    assert list(devices.named(present)) == ["vulkan:0", "vulkan:1", "cuda:0", "cpu"]
    assert devices.choose("vulkan:0", present) is AGAIN
    assert devices.choose_target("auto", "", present) == (PLACED,)


def test_a_draft_keeps_off_the_targets_card_by_whatever_backend() -> None:
    assert devices.choose_draft("auto", [PLACED, AGAIN, CPU], [PLACED]) is CPU
    assert devices.choose_draft("auto", [PLACED, AGAIN, CPU], [AGAIN]) is CPU
    assert devices.choose_draft("auto", [PLACED, AGAIN, OTHER, CPU], [AGAIN]) is OTHER


@given(
    st.lists(
        st.builds(
            fake,
            st.sampled_from(["CUDA0", "CUDA1", "Vulkan0", "Vulkan1", "ROCm0", "CPU"]),
            st.sampled_from(["gpu", "igpu"]),
            description=st.sampled_from(["one", "other"]),
            id=st.sampled_from(["", "0000:01:00.0", "0000:02:00.0"]),
        ),
        max_size=6,
    )
)
def test_of_every_card_one_device_is_left_and_no_name_shifts(present: list[Device]) -> None:
    left = devices.distinct(present)
    assert not [one for index, one in enumerate(left) if devices.among(one, left[:index])]
    assert all(devices.among(device, left) for device in present)
    names = devices.named(present)
    assert [devices.name_of(device, present) for device in left] == [
        name for name, device in names.items() if any(device is one for one in left)
    ]


# ---------------------------------------------------------------- a target over several devices

THREE = [SMALL, LARGE, INTEGRATED, CPU]


def test_shares_belong_to_the_named_devices_in_their_order() -> None:
    assert devices.parse_target("cuda:1, CUDA:0", "3,1") == (("cuda:1", "cuda:0"), (3.0, 1.0))
    assert devices.choose_target("cuda:1,cuda:0", "3,1", THREE) == (LARGE, SMALL)
    assert devices.names_of((LARGE, SMALL), THREE) == "cuda:1,cuda:0"


def test_named_devices_without_shares_are_divided_by_llama_cpp() -> None:
    assert devices.choose_target("cuda:0,cuda:1", "", THREE) == (SMALL, LARGE)


def test_a_split_without_names_is_over_every_discrete_card_once_in_ggmls_order() -> None:
    assert devices.choose_target("auto", "3,1", THREE) == (SMALL, LARGE)
    assert devices.choose_target("auto", "3,1", [PLACED, AGAIN, OTHER, CPU]) == (PLACED, OTHER)
    assert devices.choose_target("auto", "1", [INTEGRATED, CPU]) == (INTEGRATED,)


@pytest.mark.parametrize(
    ("name", "split", "error"),
    [
        ("cuda:0", "3,1", "--tensor-split 3,1: one share per device, and --target-device names cuda:0"),
        ("cuda:0,cuda:1", "3", "--tensor-split 3: one share per device, and --target-device names cuda:0, cuda:1"),
        ("cpu", "3,1", "--tensor-split 3,1: divides GPUs, and --target-device is cpu"),
        ("auto", "1,1,1", "--tensor-split 1,1,1: one share per GPU, and here: cuda:0,cuda:1; or name some by "),
        ("cuda:0,cpu", "", "--target-device cuda:0,cpu: a list names GPUs only; --gpu-layers leaves "),
        ("cuda:0,auto", "", "--target-device cuda:0,auto: a list names GPUs only; "),
        ("cuda:0,cuda:0", "", "--target-device cuda:0,cuda:0: names a device twice"),
        ("cuda,cuda:0", "", "--target-device cuda,cuda:0: names a card twice"),
        ("cuda:0,cuda:7", "", "--target-device cuda:7: no such device; here: "),
        ("cuda:0,", "", "--target-device : no such device; here: "),
        (",".join(f"cuda:{index}" for index in range(17)), "", "llama.cpp divides a model over at most 16 devices"),
        ("auto", ",".join("1" * 17), "llama.cpp divides a model over at most 16 devices"),
    ],
)
def test_devices_and_shares_that_do_not_go_together_are_refused(name: str, split: str, error: str) -> None:
    with pytest.raises(StartError) as caught:
        devices.choose_target(name, split, THREE)
    assert error in str(caught.value)


def test_without_a_gpu_there_is_nothing_to_split() -> None:
    with pytest.raises(StartError, match=r"--tensor-split 1,1: one share per GPU, and here: none"):
        devices.choose_target("auto", "1,1", [CPU])


def test_targets_spread_over_cards_and_not_over_their_names() -> None:
    assert devices.choose_target("auto", "", [PLACED, AGAIN, OTHER, CPU], [PLACED]) == (OTHER,)
    assert devices.choose_target("auto", "", [PLACED, AGAIN, CPU], [AGAIN]) == (PLACED,)
