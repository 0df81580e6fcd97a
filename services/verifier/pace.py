"""The recent speed of decoding in tokens per millisecond, waits included: what time is worth to the scheduler. Pure."""

from typing import Final

# A mean over some twenty rounds, which averages refusals and still follows a new request or drafter.
_MEMORY: Final = 0.95


class Pace:
    def __init__(self) -> None:
        self._tokens = 0.0
        self._ms = 0.0
        self._since_ms: float | None = None

    def decoded(self, tokens: int, now_ms: float) -> None:
        """A round ended at `now_ms` and gave `tokens` to all requests together."""
        if self._since_ms is not None:
            self._tokens = self._tokens * _MEMORY + tokens
            self._ms = self._ms * _MEMORY + now_ms - self._since_ms
        self._since_ms = now_ms

    def interrupted(self) -> None:
        """Something else took time, so the next round is not counted."""
        self._since_ms = None

    @property
    def rate(self) -> float:
        """Tokens per millisecond; 0 before anything is known."""
        return self._tokens / self._ms if self._ms else 0.0
