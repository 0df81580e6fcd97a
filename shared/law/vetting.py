"""Has grammars compiled in child processes first, which are killed if that takes too long or breaks them.

Native code cannot be interrupted, so a grammar that never finishes would keep a core for as long as its process lives.
The children are started when they are needed, stay for later grammars, and end with their parent.
"""

import atexit
import hashlib
import struct
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

MOST: Final = 4  # children at once; each takes some 50 MB
START_S: Final = 30.0  # for a child's start, which takes half a second on a machine at rest
_REMEMBERED: Final = 256  # grammars that are known to compile
_LENGTH: Final = struct.Struct("<I")
HELLO: Final = b"ready"
_TOO_LONG: Final = "the grammar is too complex: compiling it takes too long"

Command = tuple[str, ...]
CHILD: Final[Command] = (sys.executable, "-P", "-m", "shared.law.vetting_child")


class NoVerdict(RuntimeError):
    """A grammar that a child could not compile in time, or that broke the child; or no child was free."""


def put(stream: IO[bytes], data: bytes) -> None:
    """Write a message. Raises `OSError` if nobody reads."""
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def take(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None


class _Child:
    """One child process, which answers one question at a time."""

    def __init__(self, command: Command) -> None:
        """Start it and wait until it is ready. Raises `NoVerdict`."""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise NoVerdict(f"no process could be started to compile the grammar ({error.strerror})") from None
        if self._within(START_S, lambda: take(self._stdout)) != HELLO:
            self.end()
            raise NoVerdict("the process that compiles grammars does not start")

    def ask(self, grammar: str, within_s: float) -> str | None:
        """What llguidance has against the grammar, empty if nothing; None if the child did not answer, and it is dead
        then."""

        def exchange() -> bytes | None:
            put(self._stdin, grammar.encode(errors="replace"))
            return take(self._stdout)

        answer = self._within(within_s, exchange)
        if answer is None:
            self.end()
        return None if answer is None else answer.decode(errors="replace")

    def _within(self, seconds: float, exchange: Callable[[], bytes | None]) -> bytes | None:
        """What `exchange` returns; None if the child ends first, which it does after `seconds` at the latest."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            return exchange()
        except OSError:
            return None
        finally:
            timer.cancel()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def end(self) -> None:
        """Kill it. It holds nothing that would be lost."""
        self._process.kill()
        with suppress(OSError):  # what was not written yet has no reader
            self._stdin.close()
        self._stdout.close()
        self._process.wait()


class Vetting:
    """Children that compile grammars, at most `MOST` at once. Thread-safe."""

    def __init__(self, command: Command = CHILD) -> None:
        self._command = command
        self._places = threading.Semaphore(MOST)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def refusal(self, grammar: str, within_s: float) -> str:
        """Why the grammar cannot be compiled, in llguidance's words; empty if it can, or if only its special tokens are
        unknown without a vocabulary.

        Waits at most `within_s` for a free child, and as long again for its answer. Raises `NoVerdict`; its child is
        dead then.
        """
        digest = hashlib.sha256(grammar.encode(errors="replace")).digest()
        with self._lock:
            if digest in self._good:
                self._good.move_to_end(digest)
                return ""
        if within_s <= 0:
            raise NoVerdict(_TOO_LONG)
        if not self._places.acquire(timeout=within_s):
            raise NoVerdict("too many grammars are being compiled")
        try:
            answer = self._ask(grammar, within_s)
        finally:
            self._places.release()
        if not answer:
            with self._lock:
                self._good[digest] = None
                if len(self._good) > _REMEMBERED:
                    self._good.popitem(last=False)
        return answer

    def _ask(self, grammar: str, within_s: float) -> str:
        ends = time.monotonic() + within_s
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            kept = child is not None
            child = child or _Child(self._command)
            answer = child.ask(grammar, within_s)
            if answer is not None:
                with self._lock:
                    self._idle.append(child)
                return answer
            if time.monotonic() >= ends:
                raise NoVerdict(_TOO_LONG)
            if not kept:
                raise NoVerdict("the grammar is too complex: compiling it ends the process that does")
            # The child may have died earlier and of something else, such as a lack of memory: ask a new one.

    def close(self) -> None:
        """End the children that do nothing now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()


VETTING: Final = Vetting()
atexit.register(VETTING.close)
