"""What is done to the fleet, and in which order."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from shared.wire import keys
from shared.wire.messages import Finish
from shared.wire.reading import read_log
from tests.chaos.fleet import LEASE_S, START_S, Fleet, Service
from tests.chaos.records import Fault, Kind
from tests.refusals import REFUSALS, refusing

FREED_S: Final = 10.0  # a dead gateway's requests are free by then
_ORPHANS_S: Final = 2.0  # how often verifiers look for jobs whose lease has ended

Strike = Callable[[Fleet, random.Random], Awaitable[tuple[str, str]]]


def schedule(seed: int) -> Iterator[tuple[Kind, float]]:
    """Faults for ever, each with the seconds of peace before it. Every kind comes once before any comes again."""
    source = random.Random(seed)
    while True:
        kinds = list(Kind)
        source.shuffle(kinds)
        for kind in kinds:
            yield kind, source.uniform(1.0, 3.0)


async def strike(kind: Kind, fleet: Fleet, source: random.Random) -> Fault:
    """Do it, and undo what does not heal by itself."""
    clock = asyncio.get_running_loop().time
    began = clock()
    target, note = await _STRIKES[kind](fleet, source)
    return Fault(kind=kind, target=target, began=began, ended=clock(), note=note)


async def _kill_verifier(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    return _kill(source.choice(fleet.of_kind("verifier")))


async def _kill_drafter(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    return _kill(source.choice(fleet.of_kind("drafter")))


def _kill(service: Service) -> tuple[str, str]:
    service.signal(signal.SIGKILL)
    return service.name, ""


async def _freeze_verifier(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    """Long enough for another verifier to take over; then it wakes in the middle of its round."""
    service = source.choice(fleet.of_kind("verifier"))
    service.signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + _ORPHANS_S + source.uniform(0.5, 2.0))
    service.signal(signal.SIGCONT)
    return service.name, ""


async def _part_drafter(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    service = source.choice(fleet.of_kind("drafter"))
    service.proxy.part()
    await asyncio.sleep(source.uniform(2.0, 5.0))
    service.proxy.heal()
    return service.name, ""


async def _kill_gateway(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    """Its requests have to be free within `FREED_S`, and it answers again before this is over."""
    service = source.choice(fleet.of_kind("gateway"))
    card = await fleet.card(service.name)
    live = await fleet.store.live()
    readers = await fleet.store.readers(live)
    unread = {name for name, reader in zip(live, readers, strict=True) if card is not None and reader == card.id}
    clock = asyncio.get_running_loop().time
    killed = service.pid
    began = clock()
    service.signal(signal.SIGKILL)

    async def free() -> bool:
        return not unread & set(await fleet.store.live())

    async def again() -> bool:
        return service.pid != killed and await fleet.card(service.name) is not None

    await fleet.until(free, 2 * FREED_S)
    freed_s = clock() - began
    await fleet.until(again, START_S)
    abandoned = sum([await _ended(fleet, name) is Finish.ERROR for name in unread])
    note = f"{len(unread)} requests free after {freed_s:.1f} s, {abandoned} of them abandoned"
    return service.name, note if freed_s <= FREED_S else f"TOO LATE: {note}"


async def _ended(fleet: Fleet, request_id: str) -> Finish:
    log = await read_log(fleet.broker.redis, request_id)
    return log[-1][1].finish if log else Finish.NONE


async def _restart_redis(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    gently = source.random() < 0.5
    await _redis_away(fleet, source, gently=gently, empty=False)
    return "valkey", "SIGTERM" if gently else "SIGKILL"


async def _empty_redis(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    await _redis_away(fleet, source, gently=False, empty=True)
    return "valkey", ""


async def _redis_away(fleet: Fleet, source: random.Random, *, gently: bool, empty: bool) -> None:
    await fleet.server.stop(gently=gently)
    if empty:
        fleet.server.wipe()
    await asyncio.sleep(source.uniform(0.2, 2.5))
    await fleet.server.start()


async def _lose_replies(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    """What Redis did is done, and who asked does not hear of it."""
    service = source.choice([*fleet.of_kind("gateway"), *fleet.of_kind("verifier")])
    before = service.proxy.lost
    service.proxy.lose(source.randint(5, 20))
    await asyncio.sleep(source.uniform(2.0, 4.0))
    service.proxy.lose(0)
    return service.name, f"{service.proxy.lost - before} lost"


async def _refuse(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    """For a while Redis answers, but does not what it is asked for."""
    code = source.choice(list(REFUSALS))
    async with refusing(code, fleet.server.url):
        await asyncio.sleep(source.uniform(2.0, 4.0))
    return "valkey", code


async def _lose_queue(fleet: Fleet, source: random.Random) -> tuple[str, str]:
    lost = await fleet.broker.redis.delete(keys.jobs(fleet.model))
    return "valkey", "" if lost else "there was none"


_STRIKES: Final[dict[Kind, Strike]] = {
    Kind.KILL_VERIFIER: _kill_verifier,
    Kind.FREEZE_VERIFIER: _freeze_verifier,
    Kind.KILL_DRAFTER: _kill_drafter,
    Kind.PART_DRAFTER: _part_drafter,
    Kind.KILL_GATEWAY: _kill_gateway,
    Kind.RESTART_REDIS: _restart_redis,
    Kind.EMPTY_REDIS: _empty_redis,
    Kind.LOSE_REPLIES: _lose_replies,
    Kind.REFUSE: _refuse,
    Kind.LOSE_QUEUE: _lose_queue,
}
