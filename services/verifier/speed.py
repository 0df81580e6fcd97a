"""How fast a verifier is, and how fast plain decoding would be with the same requests in the same time. Pure.

A plain round gives each request one token. It would take v(requests), the measured time of a decode with one row per
request, plus the round's time outside its decode and its waits for drafts.
"""

from collections import deque
from typing import Final

WINDOW_S: Final = 5.0  # rates are means over this window, two heartbeats
_MEMORY: Final = 0.98  # the speed-up is a mean over some fifty rounds, and stays after the last answer
# A mean over some twenty rounds, which averages refusals and still follows a new request or drafter.
_PACE_MEMORY: Final = 0.95
_MOST: Final = 8192  # most rounds kept for the window, more than any verifier has had


class Speed:
    def __init__(self) -> None:
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=_MOST)
        self._tokens = 0.0  # fading sums over rounds without prefill
        self._plain = 0.0
        self._requests = 0.0

    def ended(
        self,
        *,
        now_s: float,
        ms: float,
        idle_ms: float,
        decode_ms: float,
        plain_ms: float,
        requests: int,
        tokens: int,
        prefill: bool,
    ) -> None:
        """A round of `ms` milliseconds ended: it waited `idle_ms` for drafts and decoded for `decode_ms`.

        It gave `tokens` to `requests` requests. Without drafts its decode would take `plain_ms`.
        """
        plain = float(requests)  # a round that reads a prompt counts as one that plain decoding would have too
        if not prefill:
            beside_ms = max(0.0, ms - idle_ms - decode_ms)
            plain *= ms / (plain_ms + beside_ms)
            self._tokens = self._tokens * _MEMORY + tokens
            self._plain = self._plain * _MEMORY + plain
            self._requests = self._requests * _MEMORY + requests
        self._recent.append((now_s, tokens, plain))

    def rates(self, now_s: float) -> tuple[float, float]:
        """Tokens per second over the window that ends at `now_s`, idle time included: measured, and what plain decoding
        would give."""
        while self._recent and self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()
        tokens = sum(tokens for _, tokens, _ in self._recent)
        return tokens / WINDOW_S, sum(plain for _, _, plain in self._recent) / WINDOW_S

    @property
    def speedup(self) -> float:
        """The speed-up over plain decoding of the last rounds; 0 before the first."""
        return self._tokens / self._plain if self._plain else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Tokens per round and request of the last rounds; 0 before the first."""
        return self._tokens / self._requests if self._requests else 0.0


class Pace:
    """The recent speed of decoding in tokens per millisecond, waits included: what time is worth to the scheduler."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._ms = 0.0
        self._since_ms: float | None = None

    def decoded(self, tokens: int, now_ms: float) -> None:
        """A round ended at `now_ms` and gave `tokens` to all requests together."""
        if self._since_ms is not None:
            self._tokens = self._tokens * _PACE_MEMORY + tokens
            self._ms = self._ms * _PACE_MEMORY + now_ms - self._since_ms
        self._since_ms = now_ms

    def interrupted(self) -> None:
        """Something else took time, so the next round is not counted."""
        self._since_ms = None

    @property
    def rate(self) -> float:
        """Tokens per millisecond; 0 before anything is known."""
        return self._tokens / self._ms if self._ms else 0.0
