"""What cannot be written is dropped and counted, and whoever writes it goes on."""

import errno
import json
import subprocess
import sys
from typing import Any

import pytest
import structlog

from shared.lossy import LossyStream, lossy
from shared.process import logs
from tests.patience import PROCESS_S

FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """A file on a disk with so much room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def send(self, data: bytes) -> int:
        if not self.room:
            raise FULL
        taken = data[: self.room]
        self.room -= len(taken)
        self.data += taken
        return len(taken)


def test_lines_that_do_not_fit_are_counted_and_later_ones_are_whole() -> None:
    disk = Disk(room=10)
    stream = LossyStream(disk.send)
    for line in ("first\n", "second\n", "third\n"):
        assert stream.write(line) == len(line)
    assert stream.lost == 2
    disk.room = 100
    stream.write("fourth\n")
    assert (disk.data, stream.lost) == (b"first\nseco\nfourth\n", 2)


def test_a_line_that_is_written_in_parts_is_sent_once_and_whole() -> None:
    sent: list[bytes] = []

    def send(data: bytes) -> int:
        sent.append(data)
        return len(data)

    stream = LossyStream(send)
    print("a", "b", file=stream)
    stream.write("90 %")
    stream.flush()
    assert sent == [b"a b\n", b"90 %"]


def test_a_reader_that_has_gone_and_one_that_does_not_keep_up_are_like_a_full_disk() -> None:
    for error in (BrokenPipeError(errno.EPIPE, "Broken pipe"), BlockingIOError(errno.EAGAIN, "would block")):

        def send(_: bytes, error: OSError = error) -> int:
            raise error

        stream = LossyStream(send)
        stream.write("one\ntwo\n")
        stream.flush()
        assert stream.lost == 2


def test_text_that_no_encoding_holds_is_escaped() -> None:
    disk = Disk(room=100)
    LossyStream(disk.send).write("file \udcff\n")
    assert disk.data == b"file \\udcff\n"


def test_a_stream_is_wrapped_once() -> None:
    stream: Any = LossyStream(Disk(0).send)
    assert lossy(stream) is stream


def test_the_log_says_how_many_lines_it_lost_as_soon_as_one_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(room=0)
    line_log = logs.LineLog(LossyStream(disk.send))  # type: ignore[arg-type]
    told: list[int] = []

    def warning(event: str, lines: int) -> None:
        told.append(lines)
        line_log.msg(f"{event} {lines}")

    monkeypatch.setattr(logs.logger, "warning", warning, raising=False)
    for number in range(3):
        line_log.msg(f"line {number}")
    disk.room = 6  # for the next line, and not for the one that tells
    line_log.msg("after")
    disk.room = 100
    line_log.msg("later")
    line_log.msg("last")
    assert told == [3, 4], "the line that told was lost as well"
    assert disk.data.decode().splitlines() == ["after", "later", "log_lines_dropped 4", "last"]


SERVICE = """
import sys, structlog
from shared.process import logs
logs.configure("verifier")
for _ in range(3):
    structlog.get_logger().info("request_served")
print("a library's own words", file=sys.stderr)
sys.stdout.write(f"alive {sys.stderr.lost}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a file that is always full")
def test_a_service_whose_log_cannot_be_written_goes_on() -> None:
    """Once it ended on such a line, its restarts too, and the fleet with it."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-c", SERVICE],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "alive 4")


def test_a_log_in_memory_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    kept = structlog.get_config()
    try:
        logs.configure("gateway", cached=False)
        structlog.get_logger().warning("redis_disconnected", error="x")
    finally:
        structlog.configure(**kept)
        structlog.contextvars.clear_contextvars()
    assert json.loads(capsys.readouterr().err)["event"] == "redis_disconnected"
