"""A process asks and opens the devices that it computes on, and of the others nothing that would cost them memory."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.errors import StartError
from shared.machine import devices
from shared.machine.devices import DRAFT_OPTION, TARGET_OPTION, Device
from shared.model import hardware
from shared.model.hardware import Hardware
from shared.model.llama import backend_device, library, plugins
from shared.model.llama.backend_device import list_all, open_device
from shared.model.llama.placement import open_seen, place_target
from shared.model.rows import LlamaError

CPU = Device("CPU", "a CPU", "cpu", 10**9, 2 * 10**9)
ONE = Device("CUDA0", "NVIDIA L4", "gpu", 22 * 10**9, 24 * 10**9, "0000:01:00.0")
TWO = Device("CUDA1", "NVIDIA L4", "gpu", 20 * 10**9, 24 * 10**9, "0000:02:00.0")
AGAIN = Device("Vulkan0", "an L4", "gpu", 22 * 10**9, 25 * 10**9, "0000:01:00.0")
TYPES = {"cpu": 0, "gpu": 1, "igpu": 2, "accel": 3}


@dataclass
class Machine:
    """ggml on a machine with these devices: those that llama.cpp was built with, and those of backends to load."""

    built_in: list[Device]
    added: dict[str, list[Device]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)  # backends, in order
    asked: list[str] = field(default_factory=list)  # devices whose memory somebody wanted to know
    texts: list[tuple[bytes, ...]] = field(default_factory=list)

    @property
    def devices(self) -> list[Device]:
        return self.built_in + [device for name in self.loaded for device in self.added[name]]

    def load(self, name: str) -> None:
        if name in self.broken:
            raise LlamaError(f"the backend {name} is damaged")
        if name not in self.loaded:
            self.loaded.append(name)

    def ggml(self, name: str, *_: Any) -> Callable[..., Any]:
        return getattr(self, name.removeprefix("ggml_backend_dev_"))  # type: ignore[no-any-return]

    def count(self) -> int:
        return len(self.devices)

    def get(self, index: int) -> int:
        return index

    def name(self, handle: int) -> bytes:
        return self.devices[handle].name.encode()

    def type(self, handle: int) -> int:
        return TYPES[self.devices[handle].kind]

    def get_props(self, handle: int, found: Any) -> None:
        device = self.devices[handle]
        self.asked.append(device.name)
        properties = ctypes.cast(found, ctypes.POINTER(backend_device._Properties)).contents
        texts = device.name.encode(), device.description.encode(), device.id.encode()
        self.texts.append(texts)  # ctypes keeps addresses only
        properties.name, properties.description = texts[:2]
        properties.memory_free, properties.memory_total = device.memory_free, device.memory_total
        properties.type, properties.device_id = TYPES[device.kind], texts[2] or None


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two cards that llama.cpp's own CUDA lists, and one of them again by an added Vulkan."""
    made = Machine([ONE, TWO, CPU], {"vulkan": [AGAIN]})
    monkeypatch.setattr(library, "start", lambda: None)
    monkeypatch.setattr(library, "ggml", made.ggml)
    monkeypatch.setattr(plugins, "installed", lambda: dict.fromkeys(made.added, Path()))
    monkeypatch.setattr(plugins, "load", made.load)
    monkeypatch.setattr(hardware, "look", look_again(made))
    return made


def look_again(box: Machine) -> Callable[[], Hardware]:
    """What a child process would say, which asks every device and leaves nothing in this process."""

    def look() -> Hardware:
        loaded, asked = box.loaded, box.asked
        box.loaded, box.asked = [], []
        try:
            return list_all()
        finally:
            box.loaded, box.asked = loaded, asked

    return look


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "look", lambda: pytest.fail("a child was asked, and nobody had to choose"))


@pytest.mark.usefixtures("no_child")
def test_a_process_on_the_cpu_asks_no_gpu_and_loads_no_backend(box: Machine) -> None:
    device = open_device("cpu", DRAFT_OPTION)
    assert (device.name, device.label, device.kind) == ("CPU", "cpu", "cpu")
    assert (box.asked, box.loaded) == (["CPU"], [])


@pytest.mark.usefixtures("no_child")
def test_a_named_gpu_is_the_only_one_asked_and_its_backend_the_only_one_loaded(box: Machine) -> None:
    device = open_device("cuda:1", TARGET_OPTION)
    assert (device.plain(), device.handle, device.label) == (TWO, 1, "cuda:1")
    assert (box.asked, box.loaded) == (["CUDA1"], [])
    assert open_device(" Vulkan ", TARGET_OPTION).label == "vulkan:0"
    assert (box.asked, box.loaded) == (["CUDA1", "Vulkan0"], ["vulkan"])


@pytest.mark.usefixtures("no_child")
def test_a_split_asks_the_devices_that_it_names_in_their_order(box: Machine) -> None:
    place = place_target("cuda:1,cuda:0", "3,1")
    assert (place.name, place.shares, box.asked) == ("cuda:1,cuda:0", (3.0, 1.0), ["CUDA1", "CUDA0"])
    assert not place.on_cpu("auto")
    assert place.on_cpu("7"), "the CPU computes the other layers"


def test_auto_is_chosen_on_a_childs_answer_and_the_choice_alone_is_opened(box: Machine) -> None:
    place = place_target("auto")
    assert (place.name, box.asked, box.loaded) == ("cuda:0", ["CUDA0"], [])
    box.built_in.remove(ONE)
    box.built_in.remove(TWO)
    assert place_target("auto").name == "vulkan:0"


def test_a_split_over_all_counts_a_card_of_two_backends_once(box: Machine) -> None:
    assert place_target("auto", "3,1").name == "cuda:0,cuda:1"
    with pytest.raises(StartError, match=r"--tensor-split 1,1,1: one share per GPU, and here: cuda:0,cuda:1"):
        place_target("auto", "1,1,1")


def test_one_card_by_two_names_is_no_split(box: Machine) -> None:
    with pytest.raises(StartError, match=r"--target-device cuda:0,vulkan:0: names a card twice"):
        place_target("cuda:0,vulkan:0")


def test_a_listing_asks_every_device_and_tells_what_identifies_it(box: Machine) -> None:
    assert list_all() == Hardware((ONE, TWO, CPU, AGAIN))
    assert box.asked == ["CUDA0", "CUDA1", "CPU", "Vulkan0"]


@pytest.mark.parametrize("name", ["cuda:7", "metal", "nonsense", ""])
def test_an_unknown_device_is_one_sentence_with_what_is_there(name: str, box: Machine) -> None:
    with pytest.raises(StartError) as caught:
        open_device(name, TARGET_OPTION)
    assert str(caught.value) == (
        f"--target-device {name}: no such device; here: cuda:0 (NVIDIA L4, 22.0 of 24.0 GB free), "
        "cuda:1 (NVIDIA L4, 20.0 of 24.0 GB free), cpu, vulkan:0 (an L4, 22.0 of 25.0 GB free); or auto"
    )


def test_a_device_that_was_seen_and_is_gone_is_said_to_be_no_more(box: Machine) -> None:
    """`up` hands its children the name that it chose; the card falls off the bus before the child opens it."""
    present = hardware.look().devices
    chosen = devices.choose_target("cuda:1", "", present)
    box.built_in.remove(TWO)
    with pytest.raises(StartError, match=r"^--target-device cuda:1: no such device; here: cuda:0 .*; or auto$"):
        open_seen(chosen, present, option=TARGET_OPTION)


def test_another_card_under_the_chosen_name_is_not_taken_for_it(box: Machine) -> None:
    present = hardware.look().devices
    box.built_in.remove(ONE)
    moved = Device("CUDA0", TWO.description, "gpu", TWO.memory_free, TWO.memory_total, TWO.id)
    box.built_in[box.built_in.index(TWO)] = moved
    with pytest.raises(StartError, match=r"--target-device cuda:0: was the card 0000:01:00.0 .* is 0000:02:00.0 now"):
        open_seen([present[0]], present, option=TARGET_OPTION)


def test_a_broken_backend_is_told_where_its_device_is_wanted_and_hurts_nobody_else(box: Machine) -> None:
    box.broken.add("vulkan")
    with pytest.raises(StartError, match=r"^--draft-device vulkan:0: the backend vulkan is damaged$"):
        open_device("vulkan:0", DRAFT_OPTION)
    assert hardware.look() == Hardware((ONE, TWO, CPU), {"vulkan": "the backend vulkan is damaged"})
    assert place_target("auto").name == "cuda:0"
    assert open_device("cpu", DRAFT_OPTION).label == "cpu"
    with pytest.raises(StartError) as caught:
        devices.refuse("vulkan:1", [CPU], TARGET_OPTION, hardware.look().broken)
    assert str(caught.value) == (
        "--target-device vulkan:1: no such device; the backend vulkan is damaged; here: cpu; or auto"
    )


# ---------------------------------------------------------------- the child


def test_a_real_child_lists_this_machines_cpu() -> None:
    [cpu] = [device for device in hardware.look().devices if device.kind == "cpu"]
    assert cpu.name == "CPU"
    assert 0 < cpu.memory_free <= cpu.memory_total


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (subprocess.TimeoutExpired("x", 60), "listing them took over 60 s; is a driver stuck?"),
        (subprocess.CalledProcessError(1, "x", stderr=b"Traceback\nOSError: no libllama\n"), "(OSError: no libllama)"),
        (subprocess.CalledProcessError(-11, "x", stderr=b""), "(exit -11)"),
    ],
)
def test_a_child_that_hangs_or_crashes_is_one_sentence(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(StartError) as caught:
        hardware.look()
    assert message in str(caught.value)
