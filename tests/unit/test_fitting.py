"""How much of a model fits a device: the sum of weights, cache and working space against what is free."""

from dataclasses import dataclass

import pytest

from services.launcher import fitting
from services.launcher.fitting import Fit

GB = 10**9
BRANCHES = 56  # cells a request has beyond its context, for the branches of its guesses


@dataclass(frozen=True)
class Sized:
    """An 8B model in 4 bits: 32 layers, 4.9 GB, 128 KiB of cache per token."""

    context: int = 131072
    embedding: int = 4096
    layers: tuple[int, ...] = (130_000_000,) * 32
    output: int = 430_000_000
    input: int = 300_000_000
    tied: bool = False
    cache: tuple[int, ...] = (2048,) * 32
    n_tokens: int = 128256


MODEL = Sized()
WEIGHTS = 32 * 130_000_000 + 430_000_000
PER_TOKEN = 131072
SPACE = fitting.compute_bytes(MODEL) + fitting.RESERVE


def free_for(tokens: int, parallel: int = 1) -> int:
    return WEIGHTS + SPACE + (tokens + BRANCHES) * parallel * PER_TOKEN


def test_the_cache_of_a_token_is_two_bytes_a_number() -> None:
    assert fitting.cache_bytes(MODEL, 1) == PER_TOKEN
    assert fitting.cache_bytes(MODEL, 1000) == 1000 * PER_TOKEN


@pytest.mark.parametrize("parallel", [1, 8])
def test_what_is_left_beside_the_weights_is_context(parallel: int) -> None:
    found = fitting.fit(MODEL, free_for(10_000, parallel), on_cpu=False, parallel=parallel)
    assert found == Fit(33, 33, 10_000)
    assert found.whole
    assert str(found) == "whole, 10000 tokens"


def test_no_request_gets_more_than_the_model_was_trained_for() -> None:
    assert fitting.fit(MODEL, 100 * GB, on_cpu=False, parallel=1).context == 131072


def test_one_token_less_than_the_least_context_is_not_whole() -> None:
    assert fitting.fit(MODEL, free_for(512, 8), on_cpu=False, parallel=8).whole
    assert not fitting.fit(MODEL, free_for(511, 8), on_cpu=False, parallel=8).whole


def test_a_gpu_holds_the_last_layers_with_their_cache() -> None:
    layer = 130_000_000 + (4096 + BRANCHES) * 4096
    room = SPACE + 430_000_000 + 10 * layer
    assert fitting.fit(MODEL, room, on_cpu=False, parallel=1) == Fit(11, 33, 4096)
    assert fitting.fit(MODEL, room - 1, on_cpu=False, parallel=1) == Fit(10, 33, 4096)
    assert str(fitting.fit(MODEL, room, on_cpu=False, parallel=1)) == "11 of 33 layers"
    assert str(fitting.fit(MODEL, GB // 2, on_cpu=False, parallel=1)) == "no"


def test_the_cpu_holds_a_model_with_its_input_table_or_not_at_all() -> None:
    assert fitting.fit(MODEL, free_for(512) + 300_000_000, on_cpu=True, parallel=1) == Fit(33, 33, 512)
    assert str(fitting.fit(MODEL, free_for(512) + 300_000_000 - 1, on_cpu=True, parallel=1)) == "no"


def test_a_tied_table_lies_on_the_gpu_too() -> None:
    tied = Sized(tied=True)
    assert fitting.fit(tied, free_for(1000) + 300_000_000, on_cpu=False, parallel=1).context == 1000


def test_a_model_that_caches_nothing_has_all_its_context() -> None:
    recurrent = Sized(cache=(0,) * 32)
    assert fitting.fit(recurrent, WEIGHTS + SPACE, on_cpu=False, parallel=8) == Fit(33, 33, 131072)


def test_a_short_model_fits_with_the_context_it_has() -> None:
    assert fitting.fit(Sized(context=256), free_for(256), on_cpu=False, parallel=1) == Fit(33, 33, 256)
