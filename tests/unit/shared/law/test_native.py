"""The native code against the law in numpy, on random rows and on those that are hard."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from shared.law import draws, native, sampling
from shared.law.history import History
from shared.law.sampling import BrokenLogits, Logits, Mask
from shared.wire.messages import Sampling
from tests.examples import few

# All of `make soak`: 100,000 rows.
PARTS = 10
ROWS = few(10_000, 200)

SIZES = (1, 2, 3, 17, 127, 128, 129, 300, 1000)  # about one block of the native code, and several
T = TypeVar("T")


def random_row(random: np.random.Generator, size: int) -> Logits:
    """Narrow or wide, with ties, minus infinity and broken values in some."""
    row: Logits = (random.standard_normal(size) * random.choice([0.1, 1, 4, 12, 40])).astype(np.float32)
    if random.random() < 0.3:
        row = np.round(row)
    if random.random() < 0.2:
        row[random.random(size) < random.random()] = -np.inf
    if random.random() < 0.05:
        row[random.integers(size)] = random.choice([np.nan, np.inf])
    return row


def random_mask(random: np.random.Generator, size: int) -> Mask | None:
    kind = random.random()
    if kind < 0.6:
        return None
    mask = np.zeros(size, np.bool_) if kind < 0.7 else random.random(size) < random.choice([0.01, 0.3, 0.9])
    mask[random.integers(size)] = True
    return mask


def random_sampling(random: np.random.Generator, size: int) -> Sampling:
    def some(chance: float, value: T, default: T) -> T:
        return value if random.random() < chance else default

    return Sampling(
        seed=int(random.integers(2**63)),
        temperature=float(random.choice([0, 0.0005, 0.3, 0.7, 1, 1, 1, 1.7, 100])),
        top_k=some(0.4, int(random.integers(1, 60)), 0),
        top_p=some(0.3, float(random.uniform(0.05, 1)), 1.0),
        min_p=some(0.2, float(random.uniform(0, 0.3)), 0.0),
        presence_penalty=some(0.2, float(random.uniform(-2, 2)), 0.0),
        frequency_penalty=some(0.2, float(random.uniform(-2, 2)), 0.0),
        repetition_penalty=some(0.2, float(random.uniform(0.5, 2)), 1.0),
        # Some name an id that the vocabulary has not.
        logit_bias=some(0.2, tuple((int(random.integers(size + 2)), float(random.uniform(-9, 9))) for _ in "123"), ()),
        banned=some(0.15, tuple(int(random.integers(size + 2)) for _ in "1234"), ()),
    )


def unless_broken(compute: Callable[..., T], *given: object) -> T | None:
    try:
        return compute(*given)
    except BrokenLogits:
        return None


def numpys(row: Logits, parameters: Sampling, history: History | None, mask: Mask | None, offset: int) -> sampling.Draw:
    return sampling.draw(sampling.law(row, parameters, history, mask), parameters.seed, offset)


@pytest.mark.parametrize("part", range(PARTS))
def test_native_draws_are_the_draws_of_the_law(part: int) -> None:
    """Tokens and their order are equal; scores differ by the rounding of the sum that they share."""
    random = np.random.default_rng(part)
    for _ in range(ROWS):
        size = int(random.choice(SIZES))
        row, mask, parameters = random_row(random, size), random_mask(random, size), random_sampling(random, size)
        history = History(random.integers(0, size, 20).tolist(), random.integers(0, size, 20).tolist())
        offset, before = int(random.integers(1000)), row.copy()
        given = (row, parameters, history, mask, offset)
        wanted, found = unless_broken(numpys, *given), unless_broken(native.draw, *given)
        assert (wanted is None) == (found is None)
        if wanted is not None and found is not None:
            assert wanted.token == found.token
            assert wanted.gap == found.gap or wanted.gap == pytest.approx(found.gap, abs=2e-6)
        compare_ranks(row, parameters, history, offset)
        compare_log_probabilities(row)
        np.testing.assert_array_equal(row, before)


def compare_ranks(row: Logits, parameters: Sampling, history: History, offset: int) -> None:
    given = (row, parameters, history, offset, row.size)
    wanted, found = unless_broken(sampling.ranked, *given), unless_broken(native.ranked, *given)
    if wanted is None or found is None:
        assert wanted is found
        return
    scores, ours = dict(wanted), dict(found)
    # Where the mass of the best reaches top-p but for rounding, either side may have one more.
    assert len(scores.keys() ^ ours.keys()) <= (parameters.top_p < 1.0)
    if scores.keys() == ours.keys():
        assert list(scores) == list(ours)
        assert list(scores.values()) == pytest.approx(list(ours.values()), abs=2e-6)


def compare_log_probabilities(row: Logits) -> None:
    wanted = unless_broken(sampling.log_probabilities, row, 0, 4)
    found = unless_broken(native.log_probabilities, row, 0, 4)
    if wanted is None or found is None:
        assert wanted is found
        return
    assert wanted[0] == found[0] or wanted[0] == pytest.approx(found[0], abs=2e-6)
    assert [token for token, _ in wanted[1]] == [token for token, _ in found[1]]
    assert [value for _, value in wanted[1]] == pytest.approx([value for _, value in found[1]], abs=2e-6)


def test_noise_is_equal_to_the_rounding_of_a_logarithm() -> None:
    """Equal logits share a log-probability that rounds nothing, so scores are the noise."""
    row = np.zeros(512, np.float32)
    for offset in range(20):
        wanted = dict(sampling.ranked(row, Sampling(seed=offset), None, offset, 512))
        found = dict(native.ranked(row, Sampling(seed=offset), None, offset, 512))
        assert list(wanted) == list(found)
        np.testing.assert_allclose(list(found.values()), list(wanted.values()), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("top_k", [1, 40, 150, 1000, 19_999])
def test_top_k_of_a_large_vocabulary_keeps_the_same_ids(top_k: int) -> None:
    """Rounded logits, so that the last place is shared: the lower ids get it."""
    row = np.round(np.random.default_rng(1).standard_normal(20_000) * 6).astype(np.float32)
    law = sampling.law(row, Sampling(seed=1, top_k=top_k))
    found = native.ranked(row, Sampling(seed=1, top_k=top_k), None, 0, row.size)
    assert sorted(token for token, _ in found) == law.ids.tolist()


def test_a_strided_row_is_read_as_it_is() -> None:
    rows = np.random.default_rng(2).standard_normal((300, 2)).astype(np.float32)
    assert native.draw(rows[:, 1], Sampling(seed=1), None, None, 3) == native.draw(
        rows[:, 1].copy(), Sampling(seed=1), None, None, 3
    )


def test_a_mask_or_a_history_of_another_vocabulary_is_refused() -> None:
    row = np.zeros(10, np.float32)
    with pytest.raises(ValueError, match="a mask of 9 tokens for 10 logits"):
        native.draw(row, Sampling(seed=1), None, np.ones(9, np.bool_), 0)
    for history in (History([10]), History((), [10])):
        with pytest.raises(IndexError, match="no logit"):
            native.draw(row, Sampling(seed=1, repetition_penalty=1.1), history, None, 0)


def test_without_the_library_numpy_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    row, parameters = np.random.default_rng(3).standard_normal(200).astype(np.float32), Sampling(seed=1)
    natively = draws.draw(row, parameters, None, None, 5), draws.ranked(row, parameters, None, 5, 3)
    assert draws.NATIVE
    monkeypatch.setattr(draws, "NATIVE", False)
    assert draws.draw(row, parameters, None, None, 5).token == natively[0].token
    assert [token for token, _ in draws.ranked(row, parameters, None, 5, 3)] == [token for token, _ in natively[1]]
    assert draws.log_probabilities(row, 0, 2)[1][0][0] == int(row.argmax())


def test_a_library_that_is_missing_or_older_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_VERSION", -1)
    library, fault = native._load()
    assert library is None
    assert "compiled from other sources" in fault
    monkeypatch.setattr(native, "EXTENSION_SUFFIXES", [])
    library, fault = native._load()
    assert library is None
    assert "was not compiled" in fault


def test_a_history_counts_what_is_pushed_and_popped() -> None:
    """The arrays that native code reads say what the mapping says, whatever the order."""
    random = np.random.default_rng(4)
    history, pushed = History([1, 2, 2]), list[int]()
    for _ in range(500):
        if pushed and random.random() < 0.45:
            history.pop(pushed.pop(int(random.integers(len(pushed)))))
        else:
            pushed.append(int(random.integers(8)))
            history.push(pushed[-1])
        assert history.output == {token: pushed.count(token) for token in pushed}
        assert history.seen == {1, 2, *pushed}
    assert history.prompt.tolist() == [1, 2]
    assert all(fresh == (token not in (1, 2)) for token, fresh in zip(history.ids, history.fresh, strict=True))
    assert math.isclose(sum(history.counts), len(pushed))
