"""Verifiers and drafters that start separately: what each learns of the others before it chooses device and threads."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from services.drafter import place as drafter_place
from services.drafter.place import place_drafter
from shared.errors import StartError
from shared.fleet import arriving, neighbours
from shared.fleet.arriving import Arriving
from shared.fleet.neighbours import is_verifier
from shared.fleet.registry import CARD_TTL_MS, Registry
from shared.machine import resources
from shared.machine.devices import Device
from shared.machine.resources import Quota
from shared.model import hardware
from shared.model.hardware import Hardware
from shared.model.llama.backend_device import BackendDevice
from shared.model.llama.placement import Placement
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.messages import Announced, Arrival, Site
from tests.fleet_cards import VERIFIER

ONE = Device("CUDA0", "NVIDIA L4", "gpu", 22 * 10**9, 24 * 10**9, "0000:01:00.0")
TWO = Device("CUDA1", "NVIDIA L4", "gpu", 20 * 10**9, 24 * 10**9, "0000:02:00.0")
AGAIN = Device("Vulkan0", "an L4", "gpu", 22 * 10**9, 25 * 10**9, "0000:01:00.0")
CPU = Device("CPU", "a CPU", "cpu", 10**10, 10**10)


@pytest.fixture(autouse=True)
def box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight cores."""
    monkeypatch.setattr(resources, "identity", lambda: "boot-1")
    monkeypatch.setattr(resources, "cores", lambda: frozenset(range(8)))
    monkeypatch.setattr(resources, "quota", Quota)
    monkeypatch.setattr(arriving, "_LOOK_S", 0.0)
    monkeypatch.setattr(arriving, "HEARTBEAT_S", 0.0)


def see(monkeypatch: pytest.MonkeyPatch, *present: Device) -> None:
    """Let the drafter see these devices, and open any of them by name."""
    names = {"cpu": CPU, "cuda:0": ONE, "cuda:1": TWO, "vulkan:0": AGAIN}

    def opened(chosen: Sequence[Device], _: Sequence[Device]) -> Placement:
        [device] = chosen
        [label] = [name for name, one in names.items() if one is device]
        return Placement((BackendDevice(device.name, device.description, device.kind, 1, 1, device.id, 9, label),))

    monkeypatch.setattr(hardware, "look", lambda: Hardware(present))
    monkeypatch.setattr(drafter_place, "open_seen", opened)


async def placed(registry: Registry, threads: int = 1, stop: asyncio.Event | None = None) -> str:
    """Where a drafter with `auto` goes; "" if it was stopped before."""
    async with Arriving(registry, "drafter-b", "drafter", threads) as us:
        place = await place_drafter(None, us, "auto", stop or asyncio.Event())
        return place.name if place else ""


async def test_a_drafter_keeps_off_the_card_of_a_verifier_in_another_container(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(broker.redis)
    site = Site(machine="boot-1", devices=(ONE,))
    await registry.beat(replace(VERIFIER, host="5f1c22d0a9b1", site=site))
    see(monkeypatch, ONE, TWO, CPU)
    assert await placed(registry) == "cuda:1"
    see(monkeypatch, ONE, CPU)
    assert await placed(registry) == "cpu"
    see(monkeypatch, AGAIN, CPU)
    assert await placed(registry) == "cpu", "the same card by another backend"
    await registry.beat(replace(VERIFIER, site=replace(site, machine="boot-2")))
    see(monkeypatch, ONE, CPU)
    assert await placed(registry) == "cuda:0", "the target is on another machine"


async def test_a_drafter_that_is_first_waits_for_the_choice_of_a_verifier_that_still_loads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(broker.redis)
    see(monkeypatch, ONE, TWO, CPU)
    looked = asyncio.Event()

    def look(card: Announced) -> bool:
        looked.set()
        return is_verifier(card)

    monkeypatch.setattr(neighbours, "is_verifier", look)
    await registry.beat(Arrival(id="drafter-other", host="h", pid=1, role="drafter", site=Site()))
    waiting = asyncio.create_task(placed(registry))
    await looked.wait()
    assert not waiting.done()
    async with Arriving(registry, "verifier-a", "verifier") as verifier:
        await verifier.place([ONE], on_cpu=False)
        assert await waiting == "cuda:1"
        assert await registry.list() == [], "nobody serves yet"


async def test_without_a_gpu_there_is_no_device_to_wait_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, CPU)
    assert await placed(Registry(broker.redis)) == "cpu"


async def test_a_drafter_that_waits_can_be_stopped(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, ONE, CPU)
    stop = asyncio.Event()
    stop.set()
    assert await placed(Registry(broker.redis), stop=stop) == ""


async def test_verifier_and_drafter_that_start_together_do_not_each_take_every_core(broker: Broker) -> None:
    registry = Registry(broker.redis)
    async with (
        Arriving(registry, "verifier-a", "verifier") as target,
        Arriving(registry, "drafter-b", "drafter") as draft,
    ):
        await target.place([], on_cpu=True)
        await draft.place([], on_cpu=True)
        sites = [await asyncio.to_thread(one.threads, True) for one in (target, draft)]
    assert [site.threads for site in sites] == [6, 2], "while both compute"
    assert [site.most for site in sites] == [8, 8], "while the other rests"


async def test_a_verifier_that_is_alone_knows_what_it_would_leave_to_a_drafter(broker: Broker) -> None:
    registry = Registry(broker.redis)
    async with Arriving(registry, "verifier-a", "verifier") as target:
        await target.place([], on_cpu=True)
        alone = await asyncio.to_thread(target.threads, True)
        assert (alone.threads, alone.most) == (6, 8)
        async with Arriving(registry, "drafter-b", "drafter") as draft:
            await draft.place([], on_cpu=True)
            late = await asyncio.to_thread(draft.threads, True)
    assert (late.threads, late.most) == (2, 8)


async def test_asked_threads_are_taken_and_the_other_gets_the_rest(broker: Broker) -> None:
    registry = Registry(broker.redis)
    async with (
        Arriving(registry, "verifier-a", "verifier", 5) as target,
        Arriving(registry, "drafter-b", "drafter") as us,
    ):
        asked = await asyncio.to_thread(target.threads, True)
        assert (asked.threads, asked.most) == (5, 5)
        rest = await asyncio.to_thread(us.threads, True)
        assert (rest.threads, rest.most) == (3, 8)


async def test_the_card_of_a_predecessor_that_was_killed_takes_no_core(broker: Broker) -> None:
    """It lies there until it expires; the successor waits until it is late, and then takes its place."""
    registry = Registry(broker.redis)
    dead = Arrival(
        id="verifier-dead", host="h", pid=1, role="verifier", site=Site(machine="boot-1", cores="ff", threads=8)
    )
    await registry.beat(dead)
    looks = asyncio.Queue[dict[str, int]]()

    class Watched(Registry):
        async def ages_ms(self, instances: Sequence[str]) -> dict[str, int]:
            ages = await super().ages_ms(instances)
            looks.put_nowait(ages)
            return ages

    async with Arriving(Watched(broker.redis), "verifier-new", "verifier", clock=lambda: 0.0) as us:
        await us.place([], on_cpu=True)
        choice = asyncio.create_task(asyncio.to_thread(us.threads, True))
        for _ in range(3):
            assert (await looks.get())[dead.id] < arriving._LATE_MS
        assert not choice.done()
        await broker.redis.pexpire(keys.card(dead.id), CARD_TTL_MS - arriving._LATE_MS)
        assert (await choice).most == 8


async def test_a_process_that_cannot_start_leaves_nothing(broker: Broker) -> None:
    registry = Registry(broker.redis)

    async def fail() -> None:
        async with Arriving(registry, "verifier-a", "verifier") as us:
            await us.place([ONE], on_cpu=False)
            assert [card.id for card in await registry.announced()] == ["verifier-a"]
            raise StartError("--target-model", "x", "is none")

    with pytest.raises(StartError):
        await fail()
    assert await registry.announced() == []
