"""A mask leaves of the law only what it allows, in proportion, whatever else the law is made of."""

import numpy as np
import pytest

from shared.law import sampling
from shared.law.history import History
from shared.law.sampling import Logits, Mask
from shared.wire.messages import Sampling
from tests.laws import dense

SIZE = 2000

LAWS = {
    "plain": Sampling(seed=1),
    "cold": Sampling(seed=1, temperature=0.3),
    "top-k": Sampling(seed=1, top_k=40),
    "top-k beyond what is left": Sampling(seed=1, top_k=1500),
    "top-p": Sampling(seed=1, top_p=0.9),
    "min-p": Sampling(seed=1, min_p=0.05),
    "all three": Sampling(seed=1, top_k=100, top_p=0.95, min_p=0.01, temperature=0.8),
    "bias": Sampling(seed=1, logit_bias=((3, 5.0), (4, -100.0))),
    "greedy": Sampling(seed=1, temperature=0.0),
}


def row(seed: int = 0, spread: float = 4.0) -> Logits:
    return (np.random.default_rng(seed).standard_normal(SIZE) * spread).astype(np.float32)


def mask_of(*ids: int) -> Mask:
    mask = np.zeros(SIZE, np.bool_)
    mask[list(ids)] = True
    return mask


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [0.002, 0.1, 0.99])
def test_the_masked_law_is_the_law_of_the_allowed_logits_alone(name: str, share: float) -> None:
    """Truncations count what is allowed, as if the rest of the vocabulary did not exist."""
    mask = np.random.default_rng(7).random(SIZE) < share
    mask[[3, 9]] = True
    ids = np.flatnonzero(mask)
    parameters = LAWS[name]
    smaller = Sampling(
        **{
            **{field: getattr(parameters, field) for field in parameters.__struct_fields__},
            "logit_bias": tuple(
                (int(np.searchsorted(ids, token)), bias) for token, bias in parameters.logit_bias if mask[token]
            ),
        }
    )
    expected = np.zeros(SIZE)
    expected[ids] = dense(sampling.law(row()[ids], smaller), ids.size)
    found = dense(sampling.law(row(), parameters, None, mask), SIZE)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)
    assert not found[~mask].any()


@pytest.mark.parametrize("name", LAWS)
def test_every_draw_is_allowed_and_the_only_allowed_token_is_drawn(name: str) -> None:
    several, one = mask_of(5, 700, 1900), mask_of(1234)
    for offset in range(50):
        law = sampling.law(row(offset), LAWS[name], None, several)
        assert sampling.draw(law, 1, offset).token in (5, 700, 1900)
        assert sampling.draw(sampling.law(row(offset), LAWS[name], None, one), 1, offset).token == 1234


def test_a_mask_of_everything_changes_no_bit() -> None:
    everything = np.ones(SIZE, np.bool_)
    for parameters in LAWS.values():
        masked, free = sampling.law(row(), parameters, None, everything), sampling.law(row(), parameters)
        assert masked.ids.tolist() == free.ids.tolist()
        assert masked.logp.tolist() == free.logp.tolist()
        assert masked.lump_logp == free.lump_logp


def test_the_lump_holds_only_what_is_allowed() -> None:
    """Improbable tokens are drawn as a lump: banned ones are no part of it, and without others there is none."""
    logits = np.full(SIZE, -20.0, np.float32)
    logits[5] = 0.0
    mask = mask_of(5, 100, 101)
    law = sampling.law(logits, Sampling(seed=1), None, mask)
    assert law.lump_logp == pytest.approx(np.log(2 * np.exp(-20.0)), rel=1e-3)
    assert {sampling._inside_lump(law, key) for key in range(200)} == {100, 101}
    assert sampling.law(logits, Sampling(seed=1), None, mask_of(5)).lump_logp == -np.inf


def test_penalties_come_before_the_mask() -> None:
    parameters = Sampling(seed=1, temperature=0.0, presence_penalty=50.0)
    logits = np.zeros(SIZE, np.float32)
    logits[[5, 6]] = 2.0, 1.0
    history = History((), [5])
    assert sampling.law(logits, parameters, history, mask_of(5, 6)).ids.tolist() == [6]
