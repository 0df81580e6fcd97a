"""What a request holds is released once, by the handler or by the background task that took it over."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from services.gateway.http.background_work import Background
from services.gateway.http.holdings import Holdings


class Held:
    """Two things that a request holds, and how each ended."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    @contextmanager
    def place(self) -> Iterator[str]:
        with self._noting("place"):
            yield "place"

    @asynccontextmanager
    async def jobs(self) -> AsyncIterator[str]:
        with self._noting("jobs"):
            yield "jobs"

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        how = "left"
        try:
            yield
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self.ends.append(f"{name} {how}")


LEFT = ["jobs left", "place left"]
CANCELLED = ["jobs CancelledError", "place CancelledError"]


class Trial:
    """A handler that stops before it hands its holdings over and after it, and the work that takes them over."""

    def __init__(self) -> None:
        self.held = Held()
        self.background = Background("one")
        self.at_before, self.at_after, self.working = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.go, self.leave, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(self) -> None:
        async with Holdings() as holdings:
            assert holdings.enter_context(self.held.place()) == "place"
            assert await holdings.enter_async_context(self.held.jobs()) == "jobs"
            self.at_before.set()
            await self.go.wait()
            self.background.start("record", holdings, self.work)
            self.at_after.set()
            await self.leave.wait()

    async def work(self) -> None:
        self.working.set()
        await self.done.wait()


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("error", [None, ValueError, asyncio.CancelledError])
async def test_a_handler_that_keeps_them_releases_them_the_last_one_first(error: type[BaseException] | None) -> None:
    held = Held()
    with suppress(ValueError, asyncio.CancelledError):
        async with Holdings() as holdings:
            holdings.enter_context(held.place())
            await holdings.enter_async_context(held.jobs())
            if error is not None:
                raise error
    how = error.__name__ if error else "left"
    assert held.ends == [f"jobs {how}", f"place {how}"]


async def test_a_handler_that_is_cancelled_before_it_hands_them_over_releases_them() -> None:
    trial = Trial()
    handler = asyncio.create_task(trial.handle())
    await trial.at_before.wait()
    await cancel(handler)
    assert trial.held.ends == CANCELLED
    assert not trial.background.writes("record")


async def test_a_handler_that_is_cancelled_while_it_hands_them_over_releases_nothing() -> None:
    trial = Trial()

    async def handle() -> None:
        async with Holdings() as holdings:
            holdings.enter_context(trial.held.place())
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # comes to the handler where it waits next, which is behind the handing over
            trial.background.start("record", holdings, trial.work)
            await trial.leave.wait()

    handler = asyncio.create_task(handle())
    await trial.working.wait()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert trial.held.ends == []
    trial.done.set()
    await trial.background.close()
    assert [end.partition(" ")[0] for end in trial.held.ends] == ["place"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_after_the_handler_has_handed_them_over_only_the_work_releases_them(cancelled: bool) -> None:
    trial = Trial()
    handler = asyncio.create_task(trial.handle())
    trial.go.set()
    await trial.at_after.wait()
    await trial.working.wait()
    trial.leave.set()
    await (cancel(handler) if cancelled else handler)
    assert trial.held.ends == []
    assert trial.background.writes("record")
    trial.done.set()
    while trial.background.writes("record"):  # noqa: ASYNC110 - a few turns of the loop
        await asyncio.sleep(0)
    assert trial.held.ends == LEFT


async def test_work_that_fails_releases_them_with_its_error() -> None:
    trial = Trial()

    async def fail() -> None:
        raise ValueError("broken")

    async with Holdings() as holdings:
        holdings.enter_context(trial.held.place())
        trial.background.start("record", holdings, fail)
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "background record"]
    with pytest.raises(ValueError, match="broken"):
        await task
    assert trial.held.ends == ["place ValueError"]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_gateway_that_closes_releases_them_also_before_the_works_first_step(begun: bool) -> None:
    trial = Trial()
    async with Holdings() as holdings:
        holdings.enter_context(trial.held.place())
        await holdings.enter_async_context(trial.held.jobs())
        trial.background.start("record", holdings, trial.work)
        if begun:
            await trial.working.wait()
    await trial.background.close()
    assert trial.held.ends == CANCELLED
    assert not trial.background.writes("record")


async def test_they_are_handed_over_once() -> None:
    trial = Trial()
    async with Holdings() as holdings:
        holdings.enter_context(trial.held.place())
        async with holdings.hand_over():
            with pytest.raises(RuntimeError, match="another owner"):
                trial.background.start("record", holdings, trial.work)
            assert trial.held.ends == []
        assert trial.held.ends == ["place left"]
    assert trial.held.ends == ["place left"]
    assert not trial.background.writes("record")
