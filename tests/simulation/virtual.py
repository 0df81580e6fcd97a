"""An event loop in virtual time, with processes that can be killed or stopped between any two steps of theirs.

The clock stands still while anything can run and then jumps to the next timer, so hours cost nothing and a run is a
function of what it is given. Every callback belongs to the `Process` in whose context it was made. A killed process's
callbacks never run: no `finally`, no farewell, as with SIGKILL. A stopped one's wait until it goes on.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, Final, TypeVar

T = TypeVar("T")

_PROCESS: Final[ContextVar["Process | None"]] = ContextVar("process", default=None)
_DISPOSAL_STEPS: Final = 200_000


class Stuck(AssertionError):
    """Nothing can run any more, or virtual time ran out, and the work is not done."""


class Process:
    """A process: what runs in its context lives and dies with it. `rate` and `offset` are its clock's own."""

    def __init__(self, loop: "VirtualLoop", name: str, offset: float = 0.0, rate: float = 1.0) -> None:
        self.name = name
        self.alive = True
        self.ended = asyncio.Event()
        self.on_death: list[Callable[[], None]] = []
        self.dies_after: int | None = None  # steps
        self._loop = loop
        self._offset = offset
        self._rate = rate
        self._steps = 0
        self._busy_s = 0.0  # by how much its one computing thread is ahead of the loop
        self._stopped = False
        self._held: list[asyncio.Handle] = []
        self._context = Context()
        self._context.run(_PROCESS.set, self)
        loop.processes.append(self)

    def clock(self) -> float:
        """Its monotonic clock in seconds: no two processes agree on it."""
        return self._offset + self._rate * (self._loop.time() + self._busy_s)

    def spend(self, seconds: float) -> None:
        """Its thread computes for so long."""
        self._busy_s += seconds

    def start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        return self._loop.create_task(work, name=name, context=self._context.copy())

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            self.ended.set()
            for call in self.on_death:
                call()

    def stop(self) -> None:
        self._stopped = True

    def resume(self) -> None:
        self._stopped = False
        held, self._held = self._held, []
        for handle in held:
            self._loop.put(handle)

    def compute(self, function: Callable[..., T], *arguments: object) -> tuple[float, T]:
        """Run in its thread; returns how long that took, too."""
        self._busy_s = 0.0
        try:
            result = function(*arguments)
            return self._busy_s, result
        finally:
            self._busy_s = 0.0

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now; one that may not is kept."""
        if self.alive and not self._stopped:
            self._steps += 1
            if self.dies_after is None or self._steps <= self.dies_after:
                return True
            self.kill()
        self._held.append(handle)
        return False


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs one thing at a time, in the order in which things became ready."""

    def __init__(self, horizon: float) -> None:
        """`horizon` seconds of virtual time are enough for whatever is run."""
        self.failures: list[BaseException | str] = []
        self.processes: list[Process] = []
        self.closing = False
        self._horizon = horizon
        self._now = 0.0
        self._order = count()
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main`, then end whatever is left. Raises `Stuck` if it does not end."""
        asyncio._set_running_loop(self)
        try:
            task: asyncio.Task[T] = self.create_task(main, name="main")
            try:
                while not task.done():
                    self._step()
                return task.result()
            finally:
                self._dispose()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        if not self._ready:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if not self._timers:
                raise Stuck("nothing can run any more")
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if self._now > self._horizon and not self.closing:
                raise Stuck(f"not done after {self._horizon} s")
            self._ready.append(timer)
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is None or self.closing or process.admits(handle):
            handle._run()

    def _dispose(self) -> None:
        """Cancel all that is left, of the dead too, so that no coroutine is thrown away half run."""
        self.closing = True
        for process in self.processes:
            process.resume()
        for _ in range(3):
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            for _ in range(_DISPOSAL_STEPS):
                if all(task.done() for task in left):
                    break
                try:
                    self._step()
                except Stuck:
                    break
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()  # now it counts as seen
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def put(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)

    # ------------------------------------------------------------ what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)  # nobody else holds those of a process that was killed
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """At once, in this thread; the result comes when the process's own thread would have it."""
        future: asyncio.Future[T] = self.create_future()
        process = _PROCESS.get()
        assert process is not None, "only processes compute"
        try:
            took, result = process.compute(func, *args)
        except Exception as error:
            self.call_soon(_settle, future, None, error)
        else:
            self.call_later(took, _settle, future, result, None)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.closing:
            self.failures.append(context.get("exception") or context["message"])


def _settle(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
