"""The draw in native code: `shared/law/c`, compiled when draftmesh is installed and loaded with ctypes.

Each function gives what the one of the same name in `shared/law/draws.py` promises. ctypes lets other threads run
meanwhile. Where nothing was compiled, `FAULT` says why, and nothing here may be called.
"""

import ctypes
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

import numpy as np

from shared.law.history import History
from shared.law.sampling import BrokenLogits, Draw, Logits, Mask, is_greedy, needs_history
from shared.wire.messages import Sampling

_VERSION: Final = 1  # of the library that this module can call; draw.c has the same
_BROKEN, _OUTSIDE = -1, -2


class DrawRequest(ctypes.Structure):
    """What is asked of a row: `DrawRequest` in request.h, which explains the fields."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("bias_ids", ctypes.c_void_p),
        ("biases", ctypes.c_void_p),
        ("n_bias", ctypes.c_int64),
        ("banned", ctypes.c_void_p),
        ("n_banned", ctypes.c_int64),
        ("prompt", ctypes.c_void_p),
        ("n_prompt", ctypes.c_int64),
        ("output", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("fresh", ctypes.c_void_p),
        ("n_output", ctypes.c_int64),
        ("temperature", ctypes.c_double),
        ("top_p", ctypes.c_double),
        ("log_min_p", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("top_k", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("repetition", ctypes.c_float),
        ("presence", ctypes.c_float),
        ("frequency", ctypes.c_float),
        ("greedy", ctypes.c_int32),
    )


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none."""
    found = [path for suffix in EXTENSION_SUFFIXES if (path := Path(__file__).with_name(f"_draw{suffix}")).exists()]
    if not found:
        return None, "it was not compiled when draftmesh was installed; a C compiler and a new installation bring it"
    try:
        library = ctypes.CDLL(str(found[0]))
        version = int(library.draftmesh_version())
    except (OSError, AttributeError) as error:
        return None, f"{found[0].name} cannot be loaded: {error}"
    if version != _VERSION:
        return None, f"{found[0].name} was compiled from other sources than these"
    library.draftmesh_draw.restype = library.draftmesh_likeliest.restype = ctypes.c_int64
    library.draftmesh_draw.argtypes = (ctypes.c_void_p,) * 3
    library.draftmesh_likeliest.argtypes = (
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    )
    return library, ""


_LIBRARY, FAULT = _load()


def draw(logits: Logits, sampling: Sampling, history: History | None, mask: Mask | None, offset: int) -> Draw:
    ids, scores = _best(logits, sampling, history, mask, offset, 1 if is_greedy(sampling) else 2)
    return Draw(ids[0], scores[0] - scores[1] if len(ids) > 1 else math.inf)


def ranked(
    logits: Logits, sampling: Sampling, history: History | None, offset: int, count: int
) -> list[tuple[int, float]]:
    return list(zip(*_best(logits, sampling, history, None, offset, count), strict=True))


def log_probabilities(logits: Logits, token: int, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    assert _LIBRARY is not None, FAULT
    row = np.ascontiguousarray(logits, np.float32)
    ids, values, normaliser = (ctypes.c_int64 * top)(), (ctypes.c_double * top)(), ctypes.c_double()
    found = _LIBRARY.draftmesh_likeliest(row.ctypes.data, row.size, top, ctypes.byref(normaliser), ids, values)
    _check(found)
    off = normaliser.value
    best = tuple((ids[place], values[place] - off) for place in range(found))
    return float(row[token]) - off, best


def _best(
    logits: Logits, sampling: Sampling, history: History | None, mask: Mask | None, offset: int, count: int
) -> tuple[Sequence[int], Sequence[float]]:
    """The draw and what came closest, best first, at most `count`: ids and scores."""
    assert _LIBRARY is not None, FAULT
    row = np.ascontiguousarray(logits, np.float32)
    template, _kept_alive = _prepared(sampling)
    request = DrawRequest.from_buffer_copy(template)
    request.values, request.size = row.ctypes.data, row.size
    request.offset, request.count = offset, count
    if mask is not None:
        mask = np.ascontiguousarray(mask, np.bool_)
        if mask.size != row.size:
            raise ValueError(f"a mask of {mask.size} tokens for {row.size} logits")
        request.mask = mask.ctypes.data
    if history is not None and needs_history(sampling):
        if sampling.repetition_penalty != 1.0:
            request.prompt, request.n_prompt = history.prompt.buffer_info()
        request.output, request.n_output = history.ids.buffer_info()
        request.counts, request.fresh = history.counts.buffer_info()[0], history.fresh.buffer_info()[0]
    ids, scores = (ctypes.c_int64 * count)(), (ctypes.c_double * count)()
    found = _LIBRARY.draftmesh_draw(ctypes.byref(request), ids, scores)
    _check(found)
    return ids[:found], scores[:found]


def _check(found: int) -> None:
    if found >= 0:
        return
    if found == _BROKEN:
        raise BrokenLogits("a row of logits is not finite")
    if found == _OUTSIDE:
        raise IndexError("the history has a token that the row has no logit for")
    raise MemoryError("no memory for a draw")


@lru_cache(maxsize=256)
def _prepared(sampling: Sampling) -> tuple[DrawRequest, Any]:
    """A request with all that the parameters say, and what must live as long as it."""
    tokens = array("i", [token for token, _ in sampling.logit_bias])
    biases = array("f", [bias for _, bias in sampling.logit_bias])
    banned = array("i", sampling.banned)
    request = DrawRequest(
        bias_ids=tokens.buffer_info()[0],
        biases=biases.buffer_info()[0],
        n_bias=len(tokens),
        banned=banned.buffer_info()[0],
        n_banned=len(banned),
        top_p=sampling.top_p,
        log_min_p=float(np.log(sampling.min_p)) if sampling.min_p > 0.0 else -math.inf,
        seed=sampling.seed,
        top_k=sampling.top_k,
        repetition=sampling.repetition_penalty,
        presence=sampling.presence_penalty,
        frequency=sampling.frequency_penalty,
        temperature=sampling.temperature,
        greedy=is_greedy(sampling),
    )
    return request, (tokens, biases, banned)
