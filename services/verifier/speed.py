"""How fast a verifier is, and how fast plain decoding would be with the same requests in the same time. Pure.

Plain decoding gives each request one token in v(requests), which is measured, and in what a round takes beside its
decode and its waits for drafts, which it would take too.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 5.0  # what "now" means: two heartbeats
_MEMORY: Final = 0.98  # some fifty rounds: what an answer came to stays told after it
_MOST: Final = 8192  # rounds within the window; more have not been seen


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second over the window, idle time included: real ones, and those of plain decoding."""

    tokens: float
    plain: float


class Speed:
    """Adds up rounds."""

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
        """A round of `ms` ended, of which it waited `idle_ms` for drafts and decoded `decode_ms`.

        It gave `requests` their `tokens`; without a single draft its decode would take `plain_ms`.
        """
        plain = float(requests)  # while a prompt is read, plain decoding would have had the same rounds
        if not prefill:
            beside_ms = max(0.0, ms - idle_ms - decode_ms)
            plain *= ms / (plain_ms + beside_ms)
            self._tokens = self._tokens * _MEMORY + tokens
            self._plain = self._plain * _MEMORY + plain
            self._requests = self._requests * _MEMORY + requests
        self._recent.append((now_s, tokens, plain))

    def rates(self, now_s: float) -> Rates:
        """Of the seconds before `now_s`."""
        while self._recent and self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()
        tokens = sum(tokens for _, tokens, _ in self._recent)
        return Rates(tokens / WINDOW_S, sum(plain for _, _, plain in self._recent) / WINDOW_S)

    @property
    def speedup(self) -> float:
        """Over plain decoding, of the last rounds; 0 before the first."""
        return self._tokens / self._plain if self._plain else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Per request, of the same rounds; 0 before the first."""
        return self._tokens / self._requests if self._requests else 0.0
