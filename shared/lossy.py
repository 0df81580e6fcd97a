"""A text stream that a full disk or a reader that has gone cannot break: what cannot be written is dropped and counted.

A service that serves must not end because nobody can read what it says.
"""

import io
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TextIO

_ENCODING: Final = "utf-8"

Write = Callable[[bytes], int]


class LossyStream(io.TextIOBase):
    """Sends each whole line at once, and the beginning of a line when it is flushed. Never raises `OSError`.

    `lost` counts the lines that did not get through whole. `send` writes bytes and returns how many, like `os.write`.
    """

    encoding = _ENCODING
    errors = "backslashreplace"

    def __init__(self, send: Write, terminal: bool = False, descriptor: int = -1) -> None:
        self.lost = 0
        self._send = send
        self._terminal = terminal
        self._descriptor = descriptor
        self._begun = ""
        self._torn = False  # whether the last line was cut off by an error
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            if newline:
                self._pass_on(whole + newline)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            begun, self._begun = self._begun, ""
            if begun:
                self._pass_on(begun)

    def _pass_on(self, text: str) -> None:
        data = (f"\n{text}" if self._torn else text).encode(_ENCODING, "backslashreplace")
        left = data
        try:
            while left:
                left = left[self._send(left) :]
            self._torn = False
        except OSError:
            self.lost += max(1, min(text.count("\n"), left.count(b"\n")))
            sent = data[: len(data) - len(left)]
            self._torn = not sent.endswith(b"\n") if sent else self._torn

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise io.UnsupportedOperation("fileno")
        return self._descriptor

    def writable(self) -> bool:
        return True


def lossy(stream: TextIO) -> TextIO:
    """A `LossyStream` to the same file; the stream itself if it is one already, or is only in memory."""
    if isinstance(stream, LossyStream):
        return stream
    try:
        descriptor = stream.fileno()
        stream.flush()
    except (OSError, ValueError):
        return stream
    return LossyStream(partial(os.write, descriptor), stream.isatty(), descriptor)  # type: ignore[return-value]
