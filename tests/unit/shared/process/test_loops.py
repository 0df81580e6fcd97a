"""A service lives as long as all of its loops do, and ends with the first that is missing."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.process import lifecycle
from shared.process.lifecycle import LoopEnded, Loops
from tests.patience import HANG_S

Loop = Callable[[], Coroutine[Any, Any, None]]


async def forever() -> None:
    await asyncio.Event().wait()


async def returns() -> None:
    await asyncio.sleep(0)


async def fails() -> None:
    raise ValueError("broken")


async def errors(service: Coroutine[Any, Any, None]) -> tuple[Exception, ...]:
    """What ended it."""
    with pytest.raises(ExceptionGroup) as caught:
        await service
    return caught.value.exceptions


@pytest.mark.parametrize(("loop", "kind"), [(returns, LoopEnded), (fails, ValueError)])
async def test_a_loop_that_ends_ends_all(loop: Loop, kind: type[Exception]) -> None:
    async def service() -> None:
        async with asyncio.timeout(HANG_S), Loops() as loops:
            loops.start(forever, name="other")
            loops.start(loop, name="this one")
            await forever()

    [error] = await errors(service())
    assert isinstance(error, kind)
    assert str(error) in ("this one", "broken")


async def test_a_loop_that_is_cancelled_ends_all() -> None:
    async def service() -> None:
        async with asyncio.timeout(HANG_S), Loops() as loops:
            loops.start(forever, name="other")
            victim = loops.start(forever, name="this one")
            await asyncio.sleep(0)
            victim.cancel()
            await forever()

    assert [str(error) for error in await errors(service())] == ["this one"]


async def test_when_a_service_stops_its_loops_may_end() -> None:
    async with Loops() as loops:
        loops.start(forever, name="one")
        last = loops.start(returns, name="two")
        loops.let_end()
        await last
        loops.cancel()


async def test_a_failure_while_a_service_stops_is_one() -> None:
    async def service() -> None:
        async with Loops() as loops:
            loops.let_end()
            loops.start(fails, name="one")

    assert [type(error) for error in await errors(service())] == [ValueError]


async def test_whoever_cancels_the_service_sees_a_cancellation() -> None:
    async def service() -> None:
        async with Loops() as loops:
            loops.start(forever, name="one")
            await forever()

    task = asyncio.create_task(service())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_service_itself_is_not_hidden() -> None:
    async def service() -> None:
        async with Loops() as loops:
            loops.start(forever, name="one")
            await asyncio.sleep(0)
            raise KeyError("own")

    assert [type(error) for error in await errors(service())] == [KeyError]


def test_a_process_that_lost_a_loop_exits_with_1() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def main(stop: asyncio.Event) -> None:
        async with Loops() as loops:
            loops.start(returns, name="one")
            await stop.wait()

    with pytest.raises(SystemExit) as caught:
        lifecycle.run(main)
    assert caught.value.code == 1
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


async def test_a_loop_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "INSIST_S", 0.01)
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed == 2:
                    raise
                swallowed += 1

    async with asyncio.timeout(HANG_S), Loops() as loops:
        loops.start(stubborn, name="stubborn")
        await asyncio.sleep(0)
        loops.cancel()
    assert swallowed == 2


async def test_a_loop_that_is_cancelled_before_its_first_step_ends_all() -> None:
    async def service() -> None:
        async with asyncio.timeout(HANG_S), Loops() as loops:
            loops.start(forever, name="other")
            loops.start(forever, name="one").cancel()
            await forever()

    assert [str(error) for error in await errors(service())] == ["one"]
