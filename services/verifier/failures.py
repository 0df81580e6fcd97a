"""What follows when llama.cpp cannot compute a decode. No I/O.

Mostly the cause passes, such as memory that another program has taken. So the same requests are tried again, twice;
then they end with an error, since one of them may be the cause. A target that computes nothing for others
either is broken.
"""

from enum import Enum, auto
from typing import Final

DETAIL: Final = "The verifier's llama.cpp could not compute this request's tokens, three times in a row."
TRIES: Final = 3
BROKEN: Final = 3 * TRIES  # decodes in a row
WAIT_S: Final = 0.1  # after the first failure; after each further one as much longer


class UndoneError(RuntimeError):
    """A decode failed, and the cache is as before it. The message says how."""


class Verdict(Enum):
    """What to do with the requests of the failed decode."""

    RETRY = auto()
    END = auto()
    STOP = auto()  # the whole process ends


class Failures:
    """Counts failed decodes in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def decoded(self) -> None:
        """A decode worked."""
        self._in_a_row = 0

    def failed(self) -> Verdict:
        """A decode failed."""
        self._in_a_row += 1
        if self._in_a_row >= BROKEN:
            return Verdict.STOP
        return Verdict.RETRY if self._in_a_row % TRIES else Verdict.END

    @property
    def wait_s(self) -> float:
        """How long to wait before the next decode."""
        return WAIT_S * self._in_a_row
