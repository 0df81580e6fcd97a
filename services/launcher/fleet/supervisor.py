"""Keeps programs running and ends them in order; one that keeps failing ends all, with the cause and where its log is.

A child that dies is started again after 1, 2, 4 and 8 seconds. Five deaths within a minute, two crashes of the same
kind before it was ever ready, or a refused option at the first start raise `ChildFailed` out of the task group that
watches.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.launcher.fleet.child import Child, Program
from services.launcher.fleet.log_rotation import rotate
from services.launcher.fleet.starting import PHASE_LINES, phase
from shared.machine import signals
from shared.machine.resources import disk_full
from shared.settings.command_line import BAD_OPTION

_WINDOW_S: Final = 60.0
_ROTATE_S: Final = 5.0  # a process that logs 2 MB a second doubles its log's limit in this time
_DEATHS: Final = 5  # the waits of four restarts add up to 15 s, so a failing program ends within the window

Report = Callable[[str, str], None]


class ChildFailed(RuntimeError):
    """A program keeps failing; `exit_code` is the launcher's exit status."""

    def __init__(self, name: str, line: str, exit_code: int) -> None:
        super().__init__(f"{name}: {line}")
        self.exit_code = exit_code


class Restarts:
    """Whether and when a program that died is started again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._crashes: set[int] = set()
        self.worked = False  # whether it was ever ready: before, it is likely to crash the same way each time

    def after_crash(self, number: int) -> float | None:
        """The same as `after_death`, for a program that crashed with a signal."""
        if not self.worked and number in self._crashes:
            return None
        self._crashes.add(number)
        return self.after_death()

    def after_death(self) -> float | None:
        """Seconds to wait before the next start, or None to give up."""
        now = self._clock()
        self._deaths.append(now)
        recent = [death for death in self._deaths if death > now - _WINDOW_S]
        return None if len(recent) == _DEATHS else float(2 ** (len(recent) - 1))


class Supervisor:
    """The children of one launcher. Calls `report(name, state)` for every change."""

    def __init__(
        self,
        folder: Path,
        report: Report,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._folder = folder
        self._report = report
        self._sleep = sleep
        self._children: list[Child] = []
        self._restarts: dict[Child, Restarts] = {}
        self._phases: dict[Child, str] = {}
        self._hurry = asyncio.Event()

    async def start(self, program: Program, group: asyncio.TaskGroup) -> Child:
        """Start a program and keep it running for as long as `group` lives."""
        child = Child(program, self._folder / f"{program.name.replace(' ', '-')}.log")
        self._children.append(child)
        self._restarts[child] = Restarts()
        await child.start()
        self._report(program.name, "starting")
        group.create_task(self._watch(child), name=f"watch {program.name}")
        return child

    async def _watch(self, child: Child) -> None:
        name = child.program.name
        restarts = self._restarts[child]
        first = True
        while True:
            code = await child.wait()
            if first and code == BAD_OPTION:
                delay = None
            elif code < 0 and signals.is_crash(-code):
                delay = restarts.after_crash(-code)
            else:
                delay = restarts.after_death()
            first = False
            # An option that was right at the first start may become right again: a port, a device whose driver
            # restarts.
            if delay is None and code == BAD_OPTION:
                raise ChildFailed(name, child.error_line(), BAD_OPTION)
            if delay is None:
                raise ChildFailed(name, _gave_up(child, code), 1)
            self._report(
                name, f"died ({child.cause_of_death()}), starting again in {delay:.0f} s; its log: {child.log}"
            )
            await self._sleep(delay)
            await child.start()
            self._report(name, "started again")

    async def keep_logs(self) -> None:
        """Rotate logs that have grown too long, and report a disk without room for them, for ever."""
        full = False
        while True:
            await self._sleep(_ROTATE_S)
            was, full = full, await asyncio.to_thread(disk_full, self._folder)
            if full and not was:
                self._report("logs", f"the disk that holds {self._folder} is full; what is logged meanwhile is lost")
            elif was and not full:
                self._report("logs", "there is room again")
            for child in self._children:
                with suppress(OSError):  # the next try may succeed, and a fleet does not end because of its logs
                    await asyncio.to_thread(rotate, child.log)

    def report_starting(self) -> None:
        """Report the phase of children whose logs tell it, if it changed."""
        for child in self._children:
            told = phase(child.last_lines(PHASE_LINES))
            if told and self._phases.get(child) != told:
                self._phases[child] = told
                self._report(child.program.name, told)

    def report_ready(self, pids: Collection[int]) -> None:
        """Report the children that registered with one of `pids` as ready."""
        for child in self._children:
            if child.pid in pids:
                self._restarts[child].worked = True
                self._report(child.program.name, "ready")

    def hurry(self) -> None:
        """Kill the children for which `stop` still waits."""
        self._hurry.set()

    async def stop(self, grace_s: float = math.inf) -> None:
        """End every child, stage by stage: asks first, kills after its own grace, `grace_s` or `hurry`, and leaves
        none."""
        for stage in sorted({child.program.stage for child in self._children}):
            children = [child for child in self._children if child.program.stage == stage and child.alive]
            for child in children:
                self._report(child.program.name, "stopping")
                child.terminate()
            longest = max((child.program.grace_s for child in children), default=0.0)
            await self._ended(children, min(grace_s, longest))
            for child in children:
                if child.alive:
                    child.kill()
                    await child.wait()
                    self._report(child.program.name, "killed")
                else:
                    self._report(child.program.name, "stopped")

    async def _ended(self, children: Sequence[Child], grace_s: float) -> None:
        if not children:
            return
        async with asyncio.TaskGroup() as group:
            hurry = group.create_task(self._hurry.wait(), name="hurry")
            exits = [group.create_task(child.wait(), name=f"exit {child.program.name}") for child in children]
            pending: set[asyncio.Task[int]] = set(exits)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + grace_s
            while pending and not hurry.done() and (left := deadline - loop.time()) > 0:
                done, _ = await asyncio.wait({*pending, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if task not in done}
            for task in (hurry, *pending):
                task.cancel()


def _gave_up(child: Child, code: int) -> str:
    how = "because it keeps dying" if code < 0 else f"after {_DEATHS} deaths in a minute"
    return f"gave up {how} ({child.cause_of_death()}); its log: {child.log}"
