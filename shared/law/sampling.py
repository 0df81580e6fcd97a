"""The law of the next token and the draw from it: one function for the verifier, the drafters and the tests.

`law` applies logit bias, penalties, a mask, top-k, top-p, min-p and temperature, in llama.cpp's order. `draw` samples
the law exactly, as a pure function of the law, the seed and the offset: Gumbel noise from a counter-based hash, no
state. Pure numpy. Sources: Gumbel-max, Maddison et al. 2014; shared noise, Daliri et al. 2024; SplitMix64, Steele et
al. 2014.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from shared.law.history import History
from shared.wire.messages import Sampling

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Ids more than this many nats below the maximum are drawn as one lump, which is split only if it wins. This is exact,
# and rare enough to cost nothing: the lump has at most n_vocab * e^-12 of the head's mass.
HEAD_NATS: Final = 12.0
MIN_TEMPERATURE: Final = 1e-3
_POOL_NATS: Final = (3.0, 6.0, 12.0, 24.0, 48.0)
_INFINITY: Final = np.float32(np.inf)
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
# Noise keys of the lump and of the choice inside it; no token has these ids.
_LUMP: Final = np.array([-1])
_INSIDE: Final = np.array([-2])


class BrokenLogits(ValueError):
    """Logits that no token can be drawn from: one is not a number or +inf, or none of those that may come is finite.

    A broken model file or a kernel that overflows gives such logits. A single -inf is only a probability of 0.
    """


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution over token ids: the head one by one, and the improbable rest as one lump.

    `ids` ascend; `logp` are their float64 log-probabilities and `lump_logp` is the lump's (-inf: there is none).
    `weights`, float32 of the vocabulary's size, are proportional to every id's probability.
    """

    ids: Ids
    logp: Floats
    lump_logp: float = -math.inf
    weights: Logits | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """The drawn token, and by how many nats its perturbed score beat the next best (inf if it had no rival)."""

    token: int
    gap: float


_NO_IDS: Final[Ids] = np.empty(0, np.int64)


def needs_history(sampling: Sampling) -> bool:
    """Whether the law depends on earlier tokens, so that callers without penalties can skip counting."""
    return bool(sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0)


def is_greedy(sampling: Sampling) -> bool:
    """Whether the law is a point mass on the largest logit."""
    return sampling.temperature < MIN_TEMPERATURE


def law(logits: Logits, sampling: Sampling, history: History | None = None, mask: Mask | None = None) -> Law:
    """The distribution of the next token given its float32 `logits` of shape [n_vocab].

    A `mask` leaves only the ids where it is true, at least one; the rest have probability 0, and so have banned ids
    unless nothing else is left.

    Presence and frequency penalties count output tokens (OpenAI), the repetition penalty prompt and output (Keskar et
    al. 2019). Temperature 0 is a point mass on the largest logit, the lowest id on a tie, and so is one below 0.001,
    where float32 would overflow before it told the logits apart. Raises `BrokenLogits`.
    """
    given, best = logits, _likeliest(logits)
    logits = _allowed(_adjusted(logits, sampling, history), sampling.banned, mask)
    if logits is not given:
        best = _likeliest(logits)
    if is_greedy(sampling):
        return Law(np.array([best]), np.zeros(1))
    top = float(logits[best])
    ids = _truncated(logits, top, sampling)
    if ids is not None:
        return Law(ids, _log_softmax(logits[ids].astype(np.float64) / sampling.temperature))
    return _untruncated(logits, top, sampling.temperature)


def _likeliest(logits: Logits) -> int:
    """The lowest id with the largest logit. A NaN counts as the largest, so this look finds every broken row."""
    best = int(np.argmax(logits))
    if not math.isfinite(logits[best]):
        raise BrokenLogits("a row of logits is not finite")
    return best


def _peak(logits: Logits) -> float:
    return float(logits[_likeliest(logits)])


def _adjusted(logits: Logits, sampling: Sampling, history: History | None) -> Logits:
    if not sampling.logit_bias and (history is None or not needs_history(sampling)):
        return logits
    logits = logits.copy()
    for token, bias in sampling.logit_bias:
        if token < logits.size:
            logits[token] += np.float32(bias)
    if history is None:
        return logits
    if sampling.repetition_penalty != 1.0 and history.seen:
        seen = np.fromiter(history.seen, np.int64)
        values = logits[seen]
        penalty = np.float32(sampling.repetition_penalty)
        logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    if (sampling.presence_penalty or sampling.frequency_penalty) and history.output:
        used = np.fromiter(history.output.keys(), np.int64)
        counts = np.fromiter(history.output.values(), np.float32)
        logits[used] -= np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * counts
    return logits


def _allowed(logits: Logits, banned: Sequence[int], mask: Mask | None) -> Logits:
    """The logits with minus infinity for what the mask or a ban excludes."""
    masked = logits if mask is None else np.where(mask, logits, -_INFINITY)
    if not banned:
        return masked
    left = masked.copy()
    left[[token for token in banned if token < logits.size]] = -_INFINITY
    return left if left.max() > -_INFINITY else masked


def _truncated(logits: Logits, top: float, sampling: Sampling) -> Ids | None:
    """The surviving ids, ascending, or None if nothing is truncated."""
    if not sampling.top_k and sampling.top_p >= 1.0 and sampling.min_p <= 0.0:
        return None
    ids: Ids | None = None
    if 0 < sampling.top_k < logits.size:
        ids = _top_k(logits, top, sampling.top_k)
    if sampling.top_p < 1.0:
        ids = _top_p(logits, top, sampling.top_p, ids)
    if sampling.min_p > 0.0:
        pool = np.arange(logits.size) if ids is None else ids
        ids = pool[logits[pool] >= top + np.log(sampling.min_p)]
    return None if ids is None else np.sort(ids)


def _within(logits: Logits, top: float, nats: float) -> Ids:
    return np.flatnonzero(logits >= top - nats)


def _best(logits: Logits | Floats, pool: Ids, k: int) -> Ids:
    """The k best ids of `pool`, best first, lower ids first on a tie; partitions before it sorts."""
    values = logits[pool]
    if k < pool.size:
        bar = np.partition(values, pool.size - k)[pool.size - k]
        pool = pool[values >= bar]
        values = logits[pool]
    return pool[np.argsort(-values, kind="stable")[:k]]


def _pool(logits: Logits, top: float, enough: Callable[[Ids], bool]) -> Ids:
    """A set of the best ids that is large enough, or all that are not banned: a comparison leaves only a few to
    sort."""
    for nats in _POOL_NATS:
        pool = _within(logits, top, nats)
        if enough(pool):
            return pool
    return np.flatnonzero(logits > -_INFINITY)


def _top_k(logits: Logits, top: float, k: int) -> Ids:
    return _best(logits, _pool(logits, top, lambda pool: pool.size >= k), k)


def _top_p(logits: Logits, top: float, p: float, ids: Ids | None) -> Ids:
    """The fewest best ids whose probability reaches p; includes the one that crosses it."""
    if ids is not None:
        bar = p * float(_weights(logits[ids], top).sum())
        pool = ids
    else:
        bar = p * float(np.exp(logits - np.float32(top)).sum(dtype=np.float64))
        pool = _pool(logits, top, lambda pool: float(_weights(logits[pool], top).sum()) >= bar)
    count = 64
    while True:
        best = _best(logits, pool, count)
        cumulative = np.cumsum(_weights(logits[best], top))
        if cumulative[-1] >= bar or best.size == pool.size:
            return best[: int(np.searchsorted(cumulative, bar)) + 1]
        count *= 8


def _weights(logits: Logits, top: float) -> Floats:
    return np.asarray(np.exp(logits.astype(np.float64) - top), np.float64)


def _untruncated(logits: Logits, top: float, temperature: float) -> Law:
    scaled = (logits - np.float32(top)) / np.float32(temperature)
    head = _within(scaled, 0.0, HEAD_NATS)
    weights = np.exp(scaled)
    mass = float(weights.sum(dtype=np.float64))
    # The sums run over the same float32 values in float64, so their difference is exactly the lump.
    beyond = np.count_nonzero(weights) - head.size
    lump = mass - float(weights[head].sum(dtype=np.float64)) if beyond else 0.0
    log_mass = math.log(mass)
    logp = scaled[head].astype(np.float64) - log_mass
    return Law(head, logp, math.log(lump) - log_mass if lump > 0.0 else -math.inf, weights)


def _log_softmax(values: Floats) -> Floats:
    values = values - values.max()
    return np.asarray(values - np.log(np.exp(values).sum()), np.float64)


def draw(law: Law, seed: int, offset: int) -> Draw:
    """The law's token at `offset` under `seed`: argmax of log-probability plus keyed Gumbel noise.

    The same law, seed and offset always give the same token, and laws that are close mostly give the same token too.
    """
    if law.ids.size == 1 and law.lump_logp == -math.inf:
        return Draw(int(law.ids[0]), math.inf)
    key = _key(seed, offset)
    scores = law.logp + _gumbel(key, law.ids)
    if law.lump_logp > -math.inf:
        lump_score = law.lump_logp + float(_gumbel(key, _LUMP)[0])
        if lump_score > scores.max():
            return Draw(_inside_lump(law, key), lump_score - float(scores.max()))
    best = int(np.argmax(scores))
    winner = scores[best]
    scores[best] = -np.inf
    return Draw(int(law.ids[best]), float(winner - scores.max()))


def _inside_lump(law: Law, key: int) -> int:
    """One id of the lump, by the inverse of its cumulative distribution at a keyed uniform."""
    assert law.weights is not None, "a law with a lump has weights"
    weights = law.weights.astype(np.float64)
    weights[law.ids] = 0.0
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, float(_uniform(key, _INSIDE)[0]) * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))


def ranked(
    logits: Logits, sampling: Sampling, history: History | None, offset: int, count: int
) -> list[tuple[int, float]]:
    """The draw at `offset` and the `count` - 1 tokens that came closest to being drawn, with their scores in nats.

    Scores are log-probabilities plus noise, or logits where the law is greedy; only their differences mean anything.
    Returns fewer if the law leaves fewer. Raises `BrokenLogits`.
    """
    if is_greedy(sampling):
        _likeliest(logits)  # a ban may hide what is broken
        logits = _allowed(_adjusted(logits, sampling, history), sampling.banned, None)
        return [(int(token), float(logits[token])) for token in _top_k(logits, _peak(logits), count)]
    found = law(logits, sampling, history)
    key = _key(sampling.seed, offset)
    scores = found.logp + _gumbel(key, found.ids)
    best = _best(scores, np.arange(scores.size), count)
    tokens = [(int(found.ids[index]), float(scores[index])) for index in best]
    if found.lump_logp > -math.inf:
        lump = found.lump_logp + float(_gumbel(key, _LUMP)[0])
        if lump > tokens[0][1]:
            tokens = [(_inside_lump(found, key), lump), *tokens[: count - 1]]
    return tokens


def log_probabilities(logits: Logits, token: int, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The target's own log-probability of `token`, before bias, penalties, truncation and temperature, and the
    `top` likeliest ids with theirs, best first. Raises `BrokenLogits`."""
    peak = _peak(logits)
    values = logits.astype(np.float64)
    normaliser = peak + np.log(np.exp(values - peak).sum())
    best = _top_k(logits, peak, top) if top else _NO_IDS
    return float(values[token] - normaliser), tuple((int(i), float(values[i] - normaliser)) for i in best)


def choice_seed(seed: int, index: int) -> int:
    """The seed of choice `index` of a request; choice 0 has the request's own seed, so that its answer is the same
    for n=1 and n>1."""
    return seed if index == 0 else _mix((seed + index * _GOLDEN) & _MASK)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _key(seed: int, offset: int) -> int:
    return _mix((_mix((seed + _GOLDEN) & _MASK) + (offset + 1) * _GOLDEN) & _MASK)


def _uniform(key: int, ids: Ids) -> Floats:
    """One number in (0, 1) per id: SplitMix64's output function over key + id * golden ratio."""
    value = ids.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return np.asarray(((value >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, np.float64)


def _gumbel(key: int, ids: Ids) -> Floats:
    return np.asarray(-np.log(-np.log(_uniform(key, ids))), np.float64)
