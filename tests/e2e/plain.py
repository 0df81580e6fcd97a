"""The reference: a plain llama-cpp-python loop, one token at a time, with none of our own decoding code."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as C
import numpy as np

from shared.law import sampling
from shared.law.history import History
from shared.wire.messages import Sampling

BF16, F16 = 30, 1


@dataclass(frozen=True, slots=True)
class Reference:
    """A plain answer, and by how much the winner of each draw led, in units of logits."""

    tokens: list[int]
    gaps: list[float]


class PlainLoop:
    """One sequence of one model; `exact` takes the cache type and kernels of strict exactness."""

    def __init__(self, path: Path, n_ctx: int = 512, exact: bool = True) -> None:
        parameters = C.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = C.llama_model_load_from_file(str(path).encode(), parameters)
        context = C.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = n_ctx
        context.n_threads = context.n_threads_batch = 1
        context.flash_attn_type = 1 if exact else -1
        context.type_k, context.type_v = BF16 if exact else F16, F16
        self._context = C.llama_init_from_model(self._model, context)
        vocabulary = C.llama_model_get_vocab(self._model)
        self._n_vocab = C.llama_vocab_n_tokens(vocabulary)
        self._eog = [token for token in range(self._n_vocab) if C.llama_vocab_is_eog(vocabulary, token)]

    def answer(self, prompt: Sequence[int], parameters: Sampling, tokens: int) -> Reference:
        """Decode the prompt, then draw and decode until the end."""
        C.llama_memory_clear(C.llama_get_memory(self._context), True)
        result = Reference([], [])
        history = History(prompt)
        batch = list(prompt)
        while len(result.tokens) < tokens:
            array = (C.llama_token * len(batch))(*batch)
            assert C.llama_decode(self._context, C.llama_batch_get_one(array, len(batch))) == 0
            pointer = C.llama_get_logits_ith(self._context, -1)
            logits = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._n_vocab,))
            drawn = sampling.draw(sampling.law(logits, parameters, history), parameters.seed, len(result.tokens))
            best = [score for _, score in sampling.ranked(logits, parameters, history, len(result.tokens), 2)]
            gap = best[0] - best[1] if len(best) > 1 else math.inf
            result.gaps.append(gap if sampling.is_greedy(parameters) else gap * parameters.temperature)
            if drawn.token in self._eog:
                return result
            result.tokens.append(drawn.token)
            history.push(drawn.token)
            batch = [drawn.token]
        return result

    def close(self) -> None:
        C.llama_free(self._context)
        C.llama_model_free(self._model)
