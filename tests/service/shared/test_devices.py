"""Processes on a second device that is really there: Vulkan on this machine's CPU, by Mesa's driver."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as llama
import pytest
from msgspec.structs import replace

from shared.fleet.registry import Registry
from shared.machine import resources
from shared.machine.devices import Device
from shared.model import hardware
from shared.model.llama import library
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement, place_target
from shared.wire.broker import Broker
from shared.wire.messages import Arrival, DrafterCard, Site, VerifierCard
from tests import tiny_models
from tests.fleet_cards import VERIFIER
from tests.patience import PROCESS_S
from tests.stack import Processes

DATA: Final = Path(__file__).parents[3] / ".cache/data"
REQUIRED: Final = "DRAFTMESH_TEST_VULKAN"  # set: what these tests need must be there


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of eight layers that such a device decodes in no time."""
    return tiny_models.write(tmp_path_factory.mktemp("model") / "tiny.gguf", layers=8)


@pytest.fixture
def vulkan(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device as a listing shows it, of a backend that was added. ggml takes a CPU for it only when asked to."""
    monkeypatch.setenv("XDG_DATA_HOME", str(DATA))
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0,0")  # twice, as if there were two
    monkeypatch.setenv("GGML_VK_DISABLE_FUSION", "1")  # Mesa 22.3 may crash otherwise
    seen = [device for device in hardware.look().devices if device.name == "Vulkan0"]
    if not seen and not os.environ.get(REQUIRED):
        pytest.skip("no Vulkan device here")
    return seen[0]


@pytest.fixture
async def processes(valkey: Broker, valkey_url: str) -> AsyncIterator[Processes]:
    running = Processes(valkey_url)
    yield running
    running.end()


async def introduced(broker: Broker, verifier: VerifierCard | None = None) -> DrafterCard | Arrival:
    """What the only drafter says first of itself, while the verifier lives."""
    registry = Registry(broker.redis)
    async with asyncio.timeout(PROCESS_S):
        while True:
            if verifier:
                await registry.beat(verifier)
            for card in await registry.announced():
                if isinstance(card, DrafterCard | Arrival):
                    return card
            await asyncio.sleep(0.05)


def libraries(pid: int) -> set[str]:
    """The GPU's among those that a process has in memory."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r"\S*/(lib(?:ggml-|)vulkan\S*)", maps))


OPTIONS: Final = ("--parallel", "1", "--ctx", "64", "--threads", "1")


async def test_a_drafter_on_the_cpu_has_nothing_of_a_gpus_backend_in_memory(
    valkey: Broker, processes: Processes, tiny: Path, vulkan: Device
) -> None:
    process = processes.start("drafter", "--draft-model", str(tiny), "--draft-device", "cpu", *OPTIONS)
    while not isinstance(card := await introduced(valkey), DrafterCard):  # noqa: ASYNC110 - it appears in Redis
        await asyncio.sleep(0.05)
    assert (card.device, card.site.devices, card.site.threads) == ("cpu", (), 1)
    assert libraries(process.pid) == set()


async def test_one_that_leaves_the_device_to_a_target_on_this_machine_has_nothing_of_it_either(
    valkey: Broker, processes: Processes, tiny: Path, vulkan: Device
) -> None:
    site = Site(machine=resources.identity(), devices=(vulkan, replace_name(vulkan, "Vulkan1")))
    process = processes.start("drafter", "--draft-model", str(tiny), *OPTIONS)
    card = await introduced(valkey, replace(VERIFIER, host="another-container", site=site))
    assert (card.site.devices, card.site.cores != "") == ((), True)
    assert libraries(process.pid) == set()


async def test_one_that_has_the_device_for_itself_takes_it(
    valkey: Broker, processes: Processes, tiny: Path, vulkan: Device
) -> None:
    site = Site(machine=resources.identity(), devices=(vulkan,))
    process = processes.start("drafter", "--draft-model", str(tiny), *OPTIONS)
    card = await introduced(valkey, replace(VERIFIER, site=site))
    assert [device.name for device in card.site.devices] == ["Vulkan1"]
    assert "libggml-vulkan.so" in libraries(process.pid), "or the other tests would find nothing at any time"


def replace_name(device: Device, name: str) -> Device:
    return Device(name, device.description, device.kind, device.memory_free, device.memory_total, device.id)


@pytest.fixture
def assigned() -> Iterator[list[tuple[int, str]]]:
    """Which device each layer goes to, in the order in which llama.cpp says it."""
    found: list[tuple[int, str]] = []

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def log(_: int, text: bytes, __: Any) -> None:
        match = re.search(rb"layer +(\d+) assigned to device (\w+)", text)
        if match:
            found.append((int(match[1]), match[2].decode()))

    library.start()
    llama.llama_log_set(log, None)
    yield found
    llama.llama_log_set(library._log, None)


def test_a_target_lies_on_the_named_devices_in_their_shares(
    tiny: Path, vulkan: Device, assigned: list[tuple[int, str]]
) -> None:
    place = place_target("vulkan:1,vulkan:0", "2,1")
    model = Model(tiny, devices=place.devices, tensor_split=place.shares)
    try:
        devices = [device for _, device in sorted(assigned)]
        assert set(devices) == {"Vulkan0", "Vulkan1"}
        assert devices == sorted(devices, reverse=True), "the first layers lie on the first device"
        assert devices.count("Vulkan1") == 2 * devices.count("Vulkan0")
    finally:
        model.close()


def test_without_a_gpu_a_placement_is_the_cpu() -> None:
    place: Placement = place_target("cpu")
    assert (place.name, place.gpus, place.on_cpu("auto")) == ("cpu", (), True)
