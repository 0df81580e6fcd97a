"""How much of a model fits a device: the sum of weights, cache and working space against what is free."""

import pytest

from shared.model import memory
from shared.model.memory import RESERVE, Fit, Layout, compute_bytes, fit
from tests.sized_model import Sized

GB = 10**9
BRANCHES = 56  # cells a request has beyond its context, for the branches of its guesses

MODEL = Sized()
WEIGHTS = 32 * 130_000_000 + 430_000_000
PER_TOKEN = 131072


def layout(tokens: int, parallel: int = 1) -> Layout:
    return Layout(context=tokens, parallel=parallel)


def free_for(tokens: int, parallel: int = 1, model: Sized = MODEL) -> int:
    cache = (tokens + BRANCHES) * parallel * PER_TOKEN
    return WEIGHTS + compute_bytes(model, layout(tokens, parallel)) + RESERVE + cache


def test_the_cache_of_a_token_is_two_bytes_a_number() -> None:
    assert memory.bytes_per_token(MODEL) == PER_TOKEN
    assert memory.cache_bytes(MODEL, layout(1000), 32) == (1000 + BRANCHES) * PER_TOKEN
    in_streams = Layout(context=1000, parallel=3, unified=False)
    assert memory.cache_bytes(MODEL, in_streams, 32) == 3 * 1000 * PER_TOKEN


@pytest.mark.parametrize("parallel", [1, 8])
def test_what_is_left_beside_the_weights_is_context(parallel: int) -> None:
    found = fit(MODEL, free_for(10_000, parallel), on_cpu=False, parallel=parallel)
    assert found == Fit(33, 33, 10_000)
    assert found.whole
    assert str(found) == "whole, 10000 tokens"


def test_no_request_gets_more_than_the_model_was_trained_for() -> None:
    assert fit(MODEL, 100 * GB, on_cpu=False, parallel=1).context == 131072


def test_one_token_less_than_the_least_context_is_not_whole() -> None:
    assert fit(MODEL, free_for(512, 8), on_cpu=False, parallel=8).whole
    assert not fit(MODEL, free_for(511, 8), on_cpu=False, parallel=8).whole


def test_a_gpu_holds_the_last_layers_with_their_cache() -> None:
    layer = 130_000_000 + (4096 + BRANCHES) * 4096
    room = compute_bytes(MODEL, layout(4096)) + RESERVE + 430_000_000 + 10 * layer
    assert fit(MODEL, room, on_cpu=False, parallel=1) == Fit(11, 33, 4096)
    assert fit(MODEL, room - 1, on_cpu=False, parallel=1) == Fit(10, 33, 4096)
    assert str(fit(MODEL, room, on_cpu=False, parallel=1)) == "11 of 33 layers"
    assert str(fit(MODEL, GB // 2, on_cpu=False, parallel=1)) == "no"


def test_what_a_gpu_leaves_the_cpu_takes() -> None:
    whole = memory.need(MODEL, layout(4096), 33, on_cpu=True)
    for layers in (0, 1, 11, 33):
        gpu, cpu = (
            memory.need(MODEL, layout(4096), layers, on_cpu=False),
            memory.need_of_rest(MODEL, layout(4096), layers),
        )
        assert gpu.weights + cpu.weights == whole.weights - (300_000_000 if layers == 33 else 0)
        assert gpu.cache + cpu.cache == whole.cache
    assert memory.need_of_rest(MODEL, layout(4096), 33).total == 0


def test_the_cpu_holds_a_model_with_its_input_table_or_not_at_all() -> None:
    assert fit(MODEL, free_for(512) + 300_000_000, on_cpu=True, parallel=1) == Fit(33, 33, 512)
    assert str(fit(MODEL, free_for(512) + 300_000_000 - 1, on_cpu=True, parallel=1)) == "no"


def test_a_tied_table_lies_on_the_gpu_too() -> None:
    tied = Sized(tied=True)
    assert fit(tied, free_for(1000) + 300_000_000, on_cpu=False, parallel=1).context == 1000


def test_a_model_that_caches_nothing_has_all_its_context() -> None:
    recurrent = Sized(cache=(0,) * 32)
    room = WEIGHTS + compute_bytes(recurrent, layout(131072, 8)) + RESERVE
    assert fit(recurrent, room, on_cpu=False, parallel=8) == Fit(33, 33, 131072)


def test_a_short_model_fits_with_the_context_it_has() -> None:
    assert fit(Sized(context=256), free_for(256), on_cpu=False, parallel=1) == Fit(33, 33, 256)


# Gemma 3 27B: 62 layers of which every sixth sees everything, the others 1,024 tokens.
GEMMA = Sized(
    embedding=5376,
    layers=(250_000_000,) * 62,
    cache=(16 * 128 * 2,) * 62,
    window=1024,
    windowed=tuple(layer % 6 != 5 for layer in range(62)),
    n_tokens=262144,
)


def test_layers_with_a_window_need_little_more_than_the_window() -> None:
    full = Layout(context=40_000, parallel=1, unified=False)
    alone = memory.windows_alone(full)
    assert alone.window_cells(1024) == 1024 + 512
    assert alone.cells == full.window_cells(1024) == 40_000
    saved = memory.cache_bytes(GEMMA, full, 62) - memory.cache_bytes(GEMMA, alone, 62)
    assert saved == 52 * (40_000 - 1536) * 16 * 128 * 2 * 2


def test_one_cache_for_all_requests_has_a_window_for_each() -> None:
    alone = Layout(context=40_000, parallel=4, swa_full=False, branches=0)
    assert alone.window_cells(1024) == 4 * 1024 + 512
    assert alone.window_cells(1000) == 4608, "in steps of 256"
    assert Layout(context=600, parallel=4, swa_full=False, branches=0).window_cells(1024) == 4 * 600


def test_windows_alone_are_kept_where_all_would_leave_too_little_context() -> None:
    all_kept = memory.need(GEMMA, layout(4096, 8), 63, on_cpu=False).total + RESERVE
    assert fit(GEMMA, all_kept, on_cpu=False, parallel=8) == Fit(63, 63, 4096)
    less = fit(GEMMA, all_kept - 1, on_cpu=False, parallel=8)
    assert less.whole
    assert less.context > 4096
