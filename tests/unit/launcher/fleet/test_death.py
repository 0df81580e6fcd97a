"""A death is told in words: the signal or exit status, a full disk or exhausted memory, and what the log says."""

import json
import signal

import pytest

from services.launcher.fleet.death import SILENT, Surroundings, explain, said


def event(level: str, name: str, **fields: object) -> str:
    return json.dumps({"level": level, "event": name, **fields})


FAILED_ON_DISK = event(
    "error", "service_failed", exception=["OSError: [Errno 28] No space left on device", "  worker.py:1 run"]
)


@pytest.mark.parametrize(
    ("status", "lines", "cause"),
    [
        (1, [FAILED_ON_DISK], "exit 1: a disk is full: service failed (OSError: [Errno 28] No space left on device)"),
        (1, [event("error", "service_failed", exception=["MemoryError"])], "exit 1: memory ran out: service failed"),
        (-9, [], "killed: most likely by the kernel, because memory ran out"),
        (137, [], "killed: most likely by the kernel, because memory ran out"),
        (-signal.SIGSEGV, [], "segmentation fault: a crash in native code"),
        (-signal.SIGABRT, ["GGML_ASSERT(n > 0) failed"], "aborted itself: a failed check in native code"),
        (3, ["ggml: failed to allocate buffer of 9 GB"], "exit 3: memory ran out: ggml: failed to allocate"),
        (2, ["error: --ctx 9: too much"], "exit 2: --ctx 9: too much"),
        (255, [], "exit 255"),
        (0, [], "exit 0"),
    ],
)
def test_the_cause_is_in_words(status: int, lines: list[str], cause: str) -> None:
    assert explain(status, lines).startswith(cause)


def test_what_the_machine_knows_is_told() -> None:
    assert explain(-9, [], Surroundings(memory_killed=True)) == "killed by the kernel, because memory ran out"
    assert explain(1, [], Surroundings(disk_full=True)) == (
        "exit 1; the disk that holds its log is full, so it may have said more"
    )


def test_memory_is_no_cause_of_a_crash() -> None:
    assert "memory ran out" not in explain(-signal.SIGILL, [], Surroundings(memory_killed=True))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], SILENT),
        ([event("info", "request_served", tokens=7)], SILENT),
        (["error: --port 1: in use", "bye"], "--port 1: in use"),
        (
            [event("error", "vocabulary_unusable", error="no tokens"), event("info", "x")],
            "vocabulary unusable (no tokens)",
        ),
        (["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'x'"], "ModuleNotFoundError: "),
        (['{"level": "error"}', '{"level": "error", "event": tor'], SILENT),
        ([event("error", "service_failed", exception=[7])], "service failed"),
    ],
)
def test_what_the_log_says_is_never_a_line_of_json(lines: list[str], words: str) -> None:
    assert said(lines).startswith(words)
