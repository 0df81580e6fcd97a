"""How likely the target is to agree with a guess: each drafter's confidence, calibrated by what was accepted before.

Pure. Only nodes that the walk reached teach anything: what hangs below a rejected token was never judged.
"""

import math
from typing import Final

# Bin edges on the logit of the confidence, so that the crowded ends near 0 and 1 are told apart.
_EDGES: Final = (-2.0, -0.5, 0.25, 0.75, 1.5, 2.5, 4.0, 6.0, 9.0)
# A drafter that nobody has judged yet: as if it had been right in `_PRIOR_WEIGHT` * confidence of that many cases.
_PRIOR_WEIGHT: Final = 4.0
# Old verdicts fade, so that a drafter can improve or get worse: about 200 verdicts per bin are remembered.
_DECAY: Final = 0.995


def _bin(score: float) -> int:
    logit = math.log(max(score, 1e-6) / max(1.0 - score, 1e-6))
    return sum(logit >= edge for edge in _EDGES)


class Acceptance:
    """Calibrated acceptance of one drafter."""

    def __init__(self) -> None:
        self._accepted = [0.0] * (len(_EDGES) + 1)
        self._judged = [0.0] * (len(_EDGES) + 1)

    def estimate(self, score: float) -> float:
        """Probability that the target draws a token guessed with confidence `score`, given that it is reached."""
        index = _bin(score)
        prior = min(max(score, 0.05), 0.95)
        return (self._accepted[index] + _PRIOR_WEIGHT * prior) / (self._judged[index] + _PRIOR_WEIGHT)

    def learn(self, score: float, accepted: bool) -> None:
        """A verdict on a token guessed with confidence `score`."""
        index = _bin(score)
        self._accepted[index] = self._accepted[index] * _DECAY + accepted
        self._judged[index] = self._judged[index] * _DECAY + 1.0

    @property
    def mean(self) -> float:
        """The acceptance rate over all confidences: what to expect of a guess that has not arrived yet."""
        return (sum(self._accepted) + _PRIOR_WEIGHT * 0.6) / (sum(self._judged) + _PRIOR_WEIGHT)
