import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.law import native, sampling
from shared.law.history import History
from shared.law.sampling import Logits, choice_seed, draw, law
from shared.wire.messages import Sampling
from tests.examples import few
from tests.laws import dense

DRAWS = few(20_000)


def chi_squared_limit(degrees: int) -> float:
    """The 99.99 % point by Wilson and Hilferty 1931: one false alarm in ten thousand, and the seeds are fixed."""
    return degrees * (1 - 2 / (9 * degrees) + 3.719 * math.sqrt(2 / (9 * degrees))) ** 3


def reference(
    logits: Logits, parameters: Sampling, history: History | None = None
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The law written down naively in float64, over the whole vocabulary and with full sorts."""
    values = logits.astype(np.float64)
    for token, bias in parameters.logit_bias:
        values[token] += bias
    if history is not None:
        for token in history.seen:
            values[token] *= 1 / parameters.repetition_penalty if values[token] > 0 else parameters.repetition_penalty
        for token, count in history.output.items():
            values[token] -= parameters.presence_penalty + parameters.frequency_penalty * count
    alive = np.ones(values.size, bool)
    order = np.argsort(-values, kind="stable")
    if parameters.top_k:
        alive[order[parameters.top_k :]] = False
    weights = np.where(alive, np.exp(values - values.max()), 0)
    if parameters.top_p < 1:
        cumulative = np.cumsum(weights[order])
        alive[order[int(np.searchsorted(cumulative, parameters.top_p * cumulative[-1])) + 1 :]] = False
    alive &= values >= values.max() + (math.log(parameters.min_p) if parameters.min_p else -np.inf)
    tempered = np.where(alive, np.exp((values - values.max()) / parameters.temperature), 0)
    return np.asarray(tempered / tempered.sum())


LAWS = {
    "plain": Sampling(seed=3),
    "cold": Sampling(seed=3, temperature=0.3),
    "hot": Sampling(seed=3, temperature=2.5),
    "top_k": Sampling(seed=3, top_k=7),
    "top_p": Sampling(seed=3, top_p=0.8),
    "min_p": Sampling(seed=3, min_p=0.1),
    "all": Sampling(seed=3, temperature=0.8, top_k=20, top_p=0.9, min_p=0.02),
    "bias": Sampling(seed=3, logit_bias=((4, 3.0), (5, -100.0))),
    "penalties": Sampling(
        seed=3, presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.3, top_p=0.95, temperature=0.9
    ),
}


@pytest.mark.parametrize("code", ["numpy", "native"])
@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_law(name: str, code: str) -> None:
    """Chi-squared of 20,000 draws against the naive softmax, rare ids pooled."""
    parameters = LAWS[name]
    logits = np.random.default_rng(5).normal(0, 2, 300).astype(np.float32)
    history = History(prompt=[1, 2, 3], output=[4, 4, 9])
    expected = reference(logits, parameters, history) * DRAWS
    counts = np.zeros(logits.size)
    found = law(logits, parameters, history)
    for offset in range(DRAWS):
        if code == "numpy":
            drawn = draw(found, parameters.seed, offset)
        else:
            drawn = native.draw(logits, parameters, history, None, offset)
        counts[drawn.token] += 1
    assert counts[expected == 0].sum() == 0
    common = expected >= 8
    observed = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], expected[~common].sum()]
    terms = [(o - e) ** 2 / e for o, e in zip(observed, wanted, strict=True) if e > 0]
    assert sum(terms) < chi_squared_limit(max(1, len(terms) - 1))


@pytest.mark.slow
@pytest.mark.parametrize("code", ["numpy", "native"])
def test_the_improbable_lump_is_drawn_exactly_too(code: str) -> None:
    """One likely id, and a crowd beyond the head's bound that weighs nearly as much: each member gets its share."""
    logits = np.full(200_001, -np.log(200_000), np.float32)
    logits[0] = 0.0
    logits[1:] -= 0.25  # the crowd weighs exp(-0.25) of the first in total, each far below the head's bound
    assert -logits[1] > sampling.HEAD_NATS
    crowded = law(logits, Sampling(seed=8))
    if code == "numpy":
        drawn = [draw(crowded, 8, offset).token for offset in range(few(4000))]
    else:
        drawn = [native.draw(logits, Sampling(seed=8), None, None, offset).token for offset in range(few(4000))]
    share = np.mean([token != 0 for token in drawn])
    assert share == pytest.approx(math.exp(-0.25) / (1 + math.exp(-0.25)), abs=0.05)
    crowd = [token for token in drawn if token]
    assert len(set(crowd)) > 0.98 * len(crowd)
    assert np.mean(crowd) == pytest.approx(100_000, rel=0.05)


vectors = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=80).map(lambda v: np.array(v, np.float32))
laws = st.builds(
    Sampling,
    seed=st.just(1),
    temperature=st.floats(0.1, 3),
    top_k=st.integers(0, 90),
    top_p=st.floats(0.05, 1),
    min_p=st.floats(0, 0.5),
)


@given(vectors, laws)
def test_the_law_equals_the_naive_one(logits: Logits, parameters: Sampling) -> None:
    found = law(logits, parameters)
    probabilities = dense(found, logits.size)
    assert np.exp(found.logp).sum() + math.exp(found.lump_logp) == pytest.approx(1.0, abs=1e-5)
    expected = reference(logits, parameters)
    # Where a cut falls between ids whose mass differs by rounding only, either side is right.
    if (probabilities > 0).sum() == (expected > 0).sum():
        np.testing.assert_allclose(probabilities, expected, atol=2e-5)
    else:
        assert abs((probabilities > 0).sum() - (expected > 0).sum()) == 1
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-4)
    assert list(found.ids) == sorted(found.ids)


@given(vectors, laws, st.integers(0, 2**64 - 1), st.integers(0, 10_000))
def test_a_draw_depends_on_law_seed_and_offset_only(
    logits: Logits, parameters: Sampling, seed: int, offset: int
) -> None:
    one = draw(law(logits, parameters), seed, offset)
    assert draw(law(logits.copy(), parameters), seed, offset) == one


def test_temperature_zero_takes_the_lowest_of_equals() -> None:
    logits = np.array([1.0, 5.0, 5.0, 2.0], np.float32)
    assert draw(law(logits, Sampling(seed=1, temperature=0.0)), 1, 0).token == 1
    assert sampling.ranked(logits, Sampling(seed=1, temperature=0.0), None, 0, 3) == [(1, 5.0), (2, 5.0), (3, 2.0)]


@given(vectors, laws, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(1, 5))
def test_the_ranking_begins_with_the_draw_and_goes_on_with_what_came_closest(
    logits: Logits, parameters: Sampling, seed: int, offset: int, count: int
) -> None:
    parameters = msgspec.structs.replace(parameters, seed=seed)
    found = sampling.ranked(logits, parameters, None, offset, count)
    drawn = draw(law(logits, parameters), seed, offset)
    assert found[0][0] == drawn.token
    assert len({token for token, _ in found}) == len(found) <= count
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    if count > 1 and len(found) > 1 and not sampling.is_greedy(parameters):
        assert scores[0] - scores[1] == pytest.approx(drawn.gap)


@pytest.mark.parametrize(
    "parameters",
    [
        Sampling(seed=1, temperature=1e-50),
        Sampling(seed=1, temperature=1e-50, top_k=3),
        Sampling(seed=1, temperature=0.001),
        Sampling(seed=1, temperature=100.0),
        Sampling(seed=1, repetition_penalty=0.01, temperature=0.001),
        Sampling(seed=1, repetition_penalty=100.0, top_p=1e-9),
        Sampling(seed=1, logit_bias=tuple((token, -1000.0) for token in range(300))),
    ],
)
def test_extreme_parameters_still_give_a_token(parameters: Sampling) -> None:
    logits = np.random.default_rng(5).normal(0, 5, 300).astype(np.float32)
    found = draw(law(logits, parameters, History(prompt=[1, 2], output=[3])), 1, 0)
    assert 0 <= found.token < 300
    assert found.gap >= 0


def test_offsets_and_seeds_are_independent() -> None:
    fair = law(np.zeros(2, np.float32), Sampling(seed=0))
    by_offset = [draw(fair, 0, offset).token for offset in range(4000)]
    by_seed = [draw(fair, seed, 0).token for seed in range(4000)]
    for drawn in (by_offset, by_seed):
        assert np.mean(drawn) == pytest.approx(0.5, abs=0.04)
        assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0.0, abs=0.06)


def test_close_laws_mostly_draw_the_same_token() -> None:
    """The point of shared noise: far above what two independent samples would agree on."""
    random = np.random.default_rng(0)
    target = random.normal(0, 2, 1000).astype(np.float32)
    drafter = target + random.normal(0, 0.2, 1000).astype(np.float32)
    parameters = Sampling(seed=4)
    same = np.mean(
        [
            draw(law(target, parameters), 4, offset).token == draw(law(drafter, parameters), 4, offset).token
            for offset in range(1000)
        ]
    )
    p, q = reference(target, parameters), reference(drafter, parameters)
    assert same > 0.8 > 3 * float((p * q).sum())


def test_a_banned_vocabulary_still_gives_a_token() -> None:
    logits = np.full(50, -np.inf, np.float32)
    logits[7] = 0.0
    for parameters in (Sampling(seed=1), Sampling(seed=1, top_k=5), Sampling(seed=1, top_p=0.5)):
        assert draw(law(logits, parameters), 1, 0).token == 7


@pytest.mark.parametrize("temperature", [0.0, 0.5, 100.0])
def test_what_is_banned_is_never_drawn_however_likely_it_is(temperature: float) -> None:
    logits = np.array([30.0, 1.0, 29.0, 2.0], np.float32)
    for parameters in (
        Sampling(seed=1, temperature=temperature, banned=(0, 2, 99)),
        Sampling(seed=1, temperature=temperature, banned=(2, 0), top_k=1, logit_bias=((0, 100.0),)),
    ):
        found = law(logits, parameters)
        assert {draw(found, 1, offset).token for offset in range(200)} <= {1, 3}
        assert all(token in (1, 3) for token, _ in sampling.ranked(logits, parameters, None, 0, 4)[:1])
        without = msgspec.structs.replace(parameters, banned=(), logit_bias=())
        rest = dense(law(logits[[1, 3]], without), 2)
        np.testing.assert_allclose(dense(found, 4)[[1, 3]], rest, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_ban_gives_way_where_a_mask_leaves_nothing_else(temperature: float) -> None:
    logits = np.array([3.0, 1.0, 2.0], np.float32)
    parameters = Sampling(seed=1, temperature=temperature, banned=(0, 1, 2))
    assert draw(law(logits, parameters, None, np.array([False, True, False])), 1, 0).token == 1
    assert draw(law(logits, Sampling(seed=1, temperature=temperature, banned=(0, 1))), 1, 0).token == 2
    assert draw(law(logits, parameters), 1, 0).token in (0, 1, 2)


def test_choices_have_seeds_of_their_own() -> None:
    assert choice_seed(42, 0) == 42
    seeds = {choice_seed(42, index) for index in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_logprobs_are_the_targets_own() -> None:
    logits = np.array([0.0, math.log(3.0), 0.0], np.float32)
    logprob, top = sampling.log_probabilities(logits, 0, 2)
    assert logprob == pytest.approx(math.log(0.2))
    assert [token for token, _ in top] == [1, 0]
    assert top[0][1] == pytest.approx(math.log(0.6))


def test_history_forgets_what_is_popped() -> None:
    history = History(prompt=[1], output=[2, 2])
    history.push(3)
    history.pop(3)
    history.pop(2)
    assert (dict(history.output), history.seen) == ({2: 1}, frozenset({1, 2}))


def broken(*places: tuple[int, float]) -> Logits:
    logits = np.linspace(-1, 1, 50).astype(np.float32)
    for token, value in places:
        logits[token] = value
    return logits


BROKEN = {
    "one is not a number": broken((3, math.nan)),
    "the best is not a number": broken((49, math.nan)),
    "one is infinite": broken((3, math.inf)),
    "infinite and not a number": broken((3, math.inf), (4, math.nan)),
    "none is finite": np.full(50, -np.inf, np.float32),
}


@pytest.mark.parametrize("logits", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("parameters", [*LAWS.values(), Sampling(seed=3, temperature=0.0)])
def test_no_token_is_drawn_from_a_broken_row_under_any_law(logits: Logits, parameters: Sampling) -> None:
    allowed = np.zeros(logits.size, bool)
    allowed[7:9] = True
    for mask in (None, allowed):
        with pytest.raises(sampling.BrokenLogits):
            law(logits, parameters, History([1], [2]), mask)
    with pytest.raises(sampling.BrokenLogits):
        sampling.ranked(logits, parameters, None, 0, 3)
    with pytest.raises(sampling.BrokenLogits):
        sampling.log_probabilities(logits, 7, 2)


@pytest.mark.parametrize("parameters", [*LAWS.values(), Sampling(seed=3, temperature=0.0)])
def test_a_logit_of_minus_infinity_is_a_probability_of_zero(parameters: Sampling) -> None:
    banned = range(10, 50)
    found = law(broken(*((token, -math.inf) for token in banned)), parameters)
    assert not dense(found, 50)[list(banned)].any()
    assert all(draw(found, 1, offset).token < 10 for offset in range(200))
