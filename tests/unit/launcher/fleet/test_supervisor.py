"""Children are kept running, given up with their own words, stopped in order, and never outlive the launcher."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from services.launcher.fleet.child import Child, Program
from services.launcher.fleet.log_rotation import LIMIT_BYTES, older
from services.launcher.fleet.supervisor import ChildFailed, Restarts, Supervisor
from shared.process.lifecycle import CLOSING_S
from tests.patience import HANG_S
from tests.processes import runs

# A child must be able to say that it is up before it is asked to stop: Python takes signals only once it runs.
SERVE = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def program(name: str, code: str, stage: int = 0) -> Program:
    return Program(name=name, command=(sys.executable, "-S", "-c", code), stage=stage, environment=dict(os.environ))


class Recorder:
    """What the supervisor reported, and naps instead of waits."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.naps: list[float] = []

    def report(self, name: str, state: str) -> None:
        self.events.append((name, state))

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110 - another process does it, so no event of ours can tell
            await asyncio.sleep(0.01)


def came_back(child: Child, pid: int) -> bool:
    return child.alive and child.pid != pid


async def until_up(child: Child) -> None:
    await until(lambda: "up" in child.last_lines(1))


async def failure(tmp_path: Path, recorder: Recorder, code: str) -> ChildFailed:
    supervisor = Supervisor(tmp_path, recorder.report, sleep=recorder.sleep)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            await supervisor.start(program("child", code), group)
    error = caught.value.exceptions[0]
    assert isinstance(error, ChildFailed)
    return error


def test_waits_double_and_the_fifth_death_in_a_minute_is_the_last() -> None:
    restarts = Restarts(lambda: 0.0)
    assert [restarts.after_death() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, None]


def test_deaths_of_the_last_minute_only_are_counted() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0, 100.0, 101.0])
    restarts = Restarts(lambda: next(times))
    assert [restarts.after_death() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 1.0, 2.0]


async def test_a_bad_option_at_the_first_start_ends_all_with_the_childs_line(tmp_path: Path) -> None:
    recorder = Recorder()
    error = await failure(
        tmp_path, recorder, "print('loading'); print('error: --ctx 9: too much'); raise SystemExit(2)"
    )
    assert (str(error), error.exit_code, recorder.naps) == ("child: --ctx 9: too much", 2, [])


async def test_a_child_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    recorder = Recorder()
    error = await failure(tmp_path, recorder, "print('no memory'); raise SystemExit(3)")
    assert (str(error), error.exit_code) == (
        f"child: gave up after 5 deaths in a minute (exit 3: no memory); its log: {tmp_path / 'child.log'}",
        1,
    )
    assert recorder.naps == [1.0, 2.0, 4.0, 8.0]


async def test_an_option_that_turns_bad_between_restarts_ends_all_with_the_childs_line_in_the_end(
    tmp_path: Path,
) -> None:
    """A device that vanishes: it may come back, as a driver starts anew, so the usual restarts are tried first."""
    recorder, ran = Recorder(), tmp_path / "ran"
    error = await failure(
        tmp_path,
        recorder,
        f"import pathlib; ran = pathlib.Path({str(ran)!r}); died = ran.exists(); ran.touch()\n"
        "if not died: raise SystemExit(1)\n"
        "print('error: --target-device cuda:0: no such device; here: cpu; or auto'); raise SystemExit(2)",
    )
    assert (str(error), error.exit_code) == ("child: --target-device cuda:0: no such device; here: cpu; or auto", 2)
    assert recorder.naps == [1.0, 2.0, 4.0, 8.0]


async def test_a_death_is_reported_with_its_cause_and_last_lines(tmp_path: Path) -> None:
    recorder = Recorder()
    await failure(tmp_path, recorder, "print('one'); print('two'); raise SystemExit(3)")
    log = tmp_path / "child.log"
    assert ("child", f"died (exit 3: two), starting again in 1 s; its log: {log}") in recorder.events


async def test_a_child_that_died_of_a_full_disk_is_not_explained_by_json(tmp_path: Path) -> None:
    recorder = Recorder()
    line = json.dumps({"event": "service_failed", "level": "error", "exception": ["OSError: [Errno 28] No space left"]})
    error = await failure(tmp_path, recorder, f"print({line!r}); raise SystemExit(1)")
    said = "service failed (OSError: [Errno 28] No space left)"
    log = tmp_path / "child.log"
    assert str(error) == f"child: gave up after 5 deaths in a minute (exit 1: a disk is full: {said}); its log: {log}"


async def test_a_child_whose_log_cannot_be_opened_runs_without_one(tmp_path: Path) -> None:
    child = Child(program("child", SERVE), tmp_path / "gone" / "child.log")
    await child.start()
    assert child.alive
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    assert child.cause_of_death().startswith("killed")


CRASH = "import os, signal; print('loading', flush=True); os.kill(os.getpid(), signal.SIGILL)"


async def test_a_child_that_crashes_twice_before_it_is_ready_is_given_up_with_the_likely_cause(tmp_path: Path) -> None:
    recorder = Recorder()
    error = await failure(tmp_path, recorder, CRASH)
    advice = "llama.cpp was built for another processor or compiled wrongly; `make llama` rebuilds it"
    cause = f"illegal instruction: {advice}: loading"
    log = tmp_path / "child.log"
    assert str(error) == f"child: gave up because it keeps dying ({cause}); its log: {log}"
    assert recorder.naps == [1.0]
    assert recorder.events[-2:] == [
        ("child", f"died ({cause}), starting again in 1 s; its log: {log}"),
        ("child", "started again"),
    ]


def test_crashes_of_two_kinds_are_not_the_same_crash() -> None:
    restarts = Restarts(lambda: 0.0)
    found = [restarts.after_crash(number) for number in (signal.SIGILL, signal.SIGSEGV, signal.SIGILL)]
    assert found == [1.0, 2.0, None]


def test_a_child_that_was_ready_keeps_its_restarts_though_it_crashes() -> None:
    restarts = Restarts(lambda: 0.0)
    restarts.worked = True
    assert [restarts.after_crash(signal.SIGSEGV) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, None]


async def test_being_ready_is_remembered_over_crashes(tmp_path: Path) -> None:
    """A child that registers each time it runs, and is then killed by a crash, is started again a second time."""
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report, sleep=recorder.sleep)
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("child", SERVE), group)
        for _ in range(2):
            pid = child.pid
            supervisor.report_ready({pid})
            os.kill(pid, signal.SIGSEGV)
            await until(partial(came_back, child, pid))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    assert recorder.naps == [1.0, 2.0]
    await supervisor.stop(grace_s=0)


async def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report, sleep=recorder.sleep)
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("child", SERVE), group)
        first = child.pid
        child.kill()
        await until(partial(came_back, child, first))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await supervisor.stop(grace_s=0)
    assert not child.alive


async def test_each_phase_of_a_start_is_reported_once(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report)
    said = [json.dumps({"event": "model_loading", "percent": percent}) for percent in (40, 80)]
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("child", SERVE), group)
        await until_up(child)
        for line in said:
            with child.log.open("a") as log:
                log.write(f"{line}\n")
            supervisor.report_starting()
            supervisor.report_starting()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    assert recorder.events == [
        ("child", state) for state in ("starting", "loading the model, 40 %", "loading the model, 80 %")
    ]
    await supervisor.stop()


async def test_children_stop_stage_by_stage(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report)
    async with asyncio.TaskGroup() as group:
        for name, stage in (("valkey", 3), ("verifier", 1), ("gateway", 0)):
            await until_up(await supervisor.start(program(name, SERVE, stage), group))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    recorder.events.clear()
    await supervisor.stop()
    assert recorder.events == [
        (name, state) for name in ("gateway", "verifier", "valkey") for state in ("stopping", "stopped")
    ]


async def test_who_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report)
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("stubborn", STUBBORN), group)
        await until_up(child)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await supervisor.stop(grace_s=0.02)
    assert (child.alive, recorder.events[-1]) == (False, ("stubborn", "killed"))


async def test_hurry_ends_the_waiting(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, Recorder().report)
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("stubborn", STUBBORN), group)
        await until_up(child)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    supervisor.hurry()
    async with asyncio.timeout(HANG_S):
        await supervisor.stop(grace_s=60)
    assert not child.alive


async def test_only_children_that_registered_are_reported_ready(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report)
    async with asyncio.TaskGroup() as group:
        one = await supervisor.start(program("one", SERVE), group)
        await supervisor.start(program("other", SERVE), group)
        supervisor.report_ready({one.pid})
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await supervisor.stop(grace_s=0)
    assert [event for event in recorder.events if event[1] == "ready"] == [("one", "ready")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the children of a killed parent")
def test_a_killed_launcher_leaves_no_orphan(tmp_path: Path) -> None:
    launcher = f"""
import asyncio, os, pathlib, sys
from services.launcher.fleet.child import Child, Program
async def main():
    command = (sys.executable, "-S", "-c", {STUBBORN!r})
    child = Child(Program(name="c", command=command, stage=0, environment=dict(os.environ)), pathlib.Path(sys.argv[1]))
    await child.start()
    print(child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", launcher, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + HANG_S
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_is_killed_who_still_drains() -> None:
    from services.gateway.service import CLOSE_S, FAREWELL_S

    assert CLOSING_S > FAREWELL_S + CLOSE_S


async def test_a_child_has_its_own_time_to_end(tmp_path: Path) -> None:
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, recorder.report)
    async with asyncio.TaskGroup() as group:
        impatient = replace(program("impatient", STUBBORN), grace_s=0.02)
        await until_up(await supervisor.start(impatient, group))
        await until_up(await supervisor.start(program("patient", SERVE, stage=1), group))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await supervisor.stop()
    assert recorder.events[-3:] == [("impatient", "killed"), ("patient", "stopping"), ("patient", "stopped")]


async def test_logs_that_have_grown_too_long_are_rotated_while_children_run(tmp_path: Path) -> None:
    rotations = 0

    async def sleep(_: float) -> None:
        nonlocal rotations
        rotations += 1
        if rotations == 2:
            await asyncio.Event().wait()

    supervisor = Supervisor(tmp_path, Recorder().report, sleep=sleep)
    async with asyncio.TaskGroup() as group:
        child = await supervisor.start(program("child", SERVE), group)
        await until_up(child)
        os.truncate(child.log, LIMIT_BYTES + 1)  # as if it had said so much
        group.create_task(supervisor.keep_logs())
        await until(lambda: rotations == 2)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await supervisor.stop(grace_s=0)
    assert older(child.log)[0].stat().st_size == LIMIT_BYTES + 1
    assert child.log.stat().st_size == 0


async def test_a_full_disk_is_told_once_and_so_is_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    rooms = iter([False, True, True, False])
    monkeypatch.setattr("services.launcher.fleet.supervisor.disk_full", lambda folder: next(rooms))
    looks = 0

    async def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Supervisor(tmp_path, recorder.report, sleep=sleep).keep_logs()
    assert recorder.events == [
        ("logs", f"the disk that holds {tmp_path} is full; what is logged meanwhile is lost"),
        ("logs", "there is room again"),
    ]
