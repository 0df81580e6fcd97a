"""`draftmesh top` on a terminal of its own: it draws, follows the terminal's size, and ends by a key or Ctrl-C."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator

import pytest

from shared.fleet.registry import Registry
from shared.wire.broker import Broker
from shared.wire.messages import GatewayCard

TIMEOUT_S = 60.0


class Terminal:
    """The command on a terminal of 24 lines and 80 columns."""

    def __init__(self, redis: str) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self._ours)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "services.launcher", "top", "--redis", redis],
            env={**environment, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen = ""

    def resize(self, height: int, width: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until(self, text: str) -> None:
        """Wait for `text` in what is written from now on."""
        self._seen = ""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self._seen:
            assert time.monotonic() < deadline, self._seen[-2000:]
            if select.select([self._ours], [], [], 0.5)[0]:
                self._seen += os.read(self._ours, 1 << 16).decode(errors="replace")

    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._ours))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._ours)


@pytest.fixture
async def terminal(valkey: Broker, valkey_url: str) -> AsyncIterator[Terminal]:
    card = GatewayCard(id="gateway-box-13-cc", host="box", pid=13, url="http://127.0.0.1:7071", streams=2)
    await Registry(valkey.redis).beat(card)
    shown = Terminal(valkey_url)
    yield shown
    shown.close()


def test_q_ends_it_and_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.until("2 streams")
    terminal.press(b"q")
    assert terminal.process.wait(TIMEOUT_S) == 0
    assert terminal.settings() == terminal.before


def test_ctrl_c_ends_it_without_a_traceback(terminal: Terminal) -> None:
    terminal.until("2 streams")
    terminal.press(b"\x03")
    terminal.until("\x1b[?1049l")  # the screen as it was before
    assert terminal.process.wait(TIMEOUT_S) == 0


def test_it_follows_the_terminals_size(terminal: Terminal) -> None:
    terminal.until("q quits")
    terminal.resize(24, 40)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.until("q quits")
    terminal.press(b"q")
    assert terminal.process.wait(TIMEOUT_S) == 0
