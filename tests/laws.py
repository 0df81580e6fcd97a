"""Laws of the next token as tests compare them."""

import numpy as np

from shared.law.sampling import Floats, Law


def dense(law: Law, n_vocab: int) -> Floats:
    """Every id's probability, float64 of shape [n_vocab]."""
    if law.weights is not None:
        return np.asarray(law.weights / law.weights.sum(dtype=np.float64), np.float64)
    probabilities = np.zeros(n_vocab)
    probabilities[law.ids] = np.exp(law.logp)
    return probabilities
