"""Estimates how likely the target accepts a guess: calibrates each drafter's confidence by the verdicts on its guesses.

Pure. A logistic curve over the logit of the confidence is fitted online. It has only two parameters, so about twenty
verdicts suffice to recognise a good or a bad drafter. First guesses, alternatives and copies have curves of their own.
Only guesses at places where the target drew are judged, so a fully accepted chain says nothing about later places.
Method: recursive Laplace approximation of Bayesian logistic regression (Spiegelhalter and
Lauritzen 1990) with exponential forgetting.
"""

import math
from typing import Final

# Bound of a confidence in nats: larger ones say no more, and one outlier would dominate the fit.
_STEEPEST: Final = 8.0
# Intercept and slope before the first verdict. The slope is steep, as for a drafter that is close to its target, but
# has a large variance.
_PRIOR: Final = (0.0, 2.5)
_PRIOR_VARIANCE: Final = (0.5, 6.0)
_RANKS: Final = 3  # curves of what a drafter itself guesses; later alternatives share the last one
COPIED: Final = -1  # the rank of a token that a drafter copied from the context instead of predicting it
_MAX_VARIANCE: Final = 4.0  # the largest variance after forgetting, so that a silent drafter stays roughly known
# Old verdicts fade, so that a drafter can become better or worse: about the last 500 count.
_MEMORY: Final = 0.998


def _logit(score: float) -> float:
    return max(-_STEEPEST, min(_STEEPEST, math.log(max(score, 1e-6) / max(1.0 - score, 1e-6))))


class _Curve:
    def __init__(self) -> None:
        self._base, self._slope = _PRIOR
        # The covariance of intercept and slope.
        (self._vb, self._vs), self._vbs = _PRIOR_VARIANCE, 0.0

    def estimate(self, score: float) -> float:
        return self._at(_logit(score))

    def _at(self, logit: float) -> float:
        return 1.0 / (1.0 + math.exp(-max(-12.0, min(12.0, self._base + self._slope * logit))))

    def learn(self, score: float, accepted: bool) -> None:
        x = _logit(score)
        chance = self._at(x)
        weight = max(chance * (1.0 - chance), 0.02)  # even a certain guess gives a little evidence
        # Forgetting scales all entries together, because otherwise the matrix would no longer be a covariance.
        growth = 1.0 / _MEMORY if self._vb + self._vs < _MAX_VARIANCE else 1.0
        self._vb, self._vbs, self._vs = self._vb * growth, self._vbs * growth, self._vs * growth
        base, slope = self._vb + self._vbs * x, self._vbs + self._vs * x
        shrink = weight / (1.0 + weight * (base + slope * x))
        self._vb -= base * base * shrink
        self._vbs -= base * slope * shrink
        self._vs -= slope * slope * shrink
        error = accepted - chance
        self._base += (self._vb + self._vbs * x) * error
        self._slope += (self._vbs + self._vs * x) * error


class Acceptance:
    """Calibrated acceptance of one drafter. `rank` is 0 for its first guess at a place, 1 for the second, …

    `COPIED` tokens have a curve of their own, because they say nothing about the drafter's own guesses.
    """

    def __init__(self) -> None:
        self._curves = [_Curve() for _ in range(_RANKS)]
        self._copies = _Curve()
        self._accepted = 3.0  # the overall rate starts as if three of five guesses had been right
        self._judged = 5.0

    def estimate(self, score: float, rank: int = 0) -> float:
        """Probability that the target draws a token guessed with confidence `score`, given that it is reached."""
        return self._curve(rank).estimate(score)

    def learn(self, score: float, accepted: bool, rank: int = 0) -> None:
        """A verdict on a token guessed with confidence `score`."""
        self._curve(rank).learn(score, accepted)
        if not rank:
            self._accepted = self._accepted * _MEMORY + accepted
            self._judged = self._judged * _MEMORY + 1.0

    def _curve(self, rank: int) -> _Curve:
        return self._copies if rank == COPIED else self._curves[min(rank, _RANKS - 1)]

    @property
    def mean(self) -> float:
        """The acceptance rate of first guesses over all confidences: the expectation for a guess that has not
        arrived."""
        return self._accepted / self._judged
