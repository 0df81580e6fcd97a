import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.scheduler import ExpectedDrafts, RowCandidate, choose, worth_awaiting
from shared.law.payoff import Measurement, payoff
from shared.law.speedup import RowCosts, expected_tokens

FLOAT = RowCosts({1: 100.0, 2: 140.0, 4: 160.0, 8: 210.0, 9: 220.0, 16: 330.0, 32: 600.0})
LINEAR = RowCosts({1: 10.0, 2: 20.0, 32: 320.0})


def chain(alpha: float, length: int, arrival: ExpectedDrafts | None = None) -> RowCandidate:
    return RowCandidate(tuple(alpha**depth for depth in range(1, length + 1)), 31, arrival, tip=alpha**length)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7, 0.8, 0.9, 0.97])
def test_one_ready_chain_gets_the_width_of_the_formula(alpha: float) -> None:
    """Where every round has a chain ready, time is worth what the best width makes of it."""
    best = payoff(Measurement(row_ms=FLOAT.table, alpha=alpha))
    choice = choose([chain(alpha, 32)], FLOAT, 0, False, 64, may_wait=True, rate=best.speedup / FLOAT(1))
    assert choice.widths == (best.width,)
    assert choice.tokens / choice.ms * FLOAT(1) == pytest.approx(best.speedup)


def test_the_more_time_is_worth_the_fewer_rows_are_bought() -> None:
    widths = [
        choose([chain(0.9, 32)], FLOAT, 0, False, 64, may_wait=False, rate=rate).widths[0]
        for rate in (0.0, 0.02, 0.03, 0.05, 0.2)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[2] > widths[-1] == 0


def test_linear_rows_are_never_bought() -> None:
    choice = choose([chain(0.999, 32)] * 3, LINEAR, 0, False, 64, may_wait=True)
    assert (choice.widths, choice.wait_ms) == ((0, 0, 0), 0.0)


def test_likely_chains_get_rows_before_unlikely_ones() -> None:
    choice = choose([chain(0.95, 10), chain(0.3, 10)], FLOAT, 0, False, 64, may_wait=False)
    assert choice.widths[0] > choice.widths[1]


def test_equal_widths_are_priced_for_everyone() -> None:
    ready = [chain(0.9, 8)] + [chain(0.9, 0)] * 3
    uneven = choose(ready, FLOAT, 0, False, 64, may_wait=False)
    equal = choose(ready, FLOAT, 0, True, 64, may_wait=False)
    assert equal.widths[0] < uneven.widths[0]
    assert equal.widths[1:] == (0, 0, 0)


def test_a_cheap_drafter_is_waited_for_and_a_slow_one_is_not() -> None:
    cheap = choose([chain(0.95, 0, ExpectedDrafts(5.0, 5.0, 0.95))], FLOAT, 0, False, 64, may_wait=True)
    slow = choose([chain(0.95, 0, ExpectedDrafts(90.0, 90.0, 0.95))], FLOAT, 0, False, 64, may_wait=True)
    assert cheap.wait_ms > 0
    assert slow.wait_ms == 0.0


def test_nobody_waits_longer_than_a_plain_step() -> None:
    choice = choose([chain(1.0, 0, ExpectedDrafts(10.0, 30.0, 1.0))], FLOAT, 0, False, 64, may_wait=True)
    assert choice.wait_ms <= FLOAT(1)


def test_rows_never_exceed_the_decode() -> None:
    choice = choose([chain(0.99, 31)] * 8, RowCosts({1: 1.0, 512: 1.001}), 20, False, 64, may_wait=False)
    assert sum(choice.widths) + 8 + 20 <= 64


@given(
    st.lists(st.lists(st.floats(0, 1), max_size=12).map(tuple), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 40),
)
def test_a_choice_is_always_possible_and_never_worse_than_plain(
    ready: list[tuple[float, ...]], equal: bool, other_rows: int
) -> None:
    candidates = [
        RowCandidate(ready=tuple(sorted(reach, reverse=True)), limit=index * 3) for index, reach in enumerate(ready)
    ]
    choice = choose(candidates, FLOAT, other_rows, equal, 64, may_wait=True)
    assert choice.tokens / choice.ms >= len(candidates) / FLOAT(len(candidates) + other_rows) - 1e-9
    for width, candidate in zip(choice.widths, candidates, strict=True):
        assert 0 <= width <= min(len(candidate.ready), candidate.limit)


def test_simulated_rounds_agree_with_the_formula() -> None:
    """Bernoulli acceptance and the scheduler's own widths give the speed-up that theory promises within 3 %."""
    random_source = random.Random(7)
    for alpha in (0.5, 0.8, 0.95):
        width = choose([chain(alpha, 32)], FLOAT, 0, False, 64, may_wait=False).widths[0]
        tokens, ms = 0, 0.0
        for _ in range(20_000):
            accepted = next((i for i in range(width) if random_source.random() >= alpha), width)
            tokens += accepted + 1
            ms += FLOAT(width + 1)
        measured = tokens / ms * FLOAT(1)
        assert measured == pytest.approx(expected_tokens(alpha, width) * FLOAT(1) / FLOAT(width + 1), rel=0.03)


ARRIVALS = st.builds(ExpectedDrafts, st.floats(0.1, 50), st.floats(0.1, 30), st.floats(0, 1))


@given(ARRIVALS, st.integers(-1, 40), st.sampled_from([FLOAT, LINEAR]), st.integers(0, 20), st.floats(0, 0.5))
def test_what_is_worth_awaiting_is_what_a_request_without_drafts_would_wait_for(
    arrival: ExpectedDrafts, limit: int, cost: RowCosts, other_rows: int, rate: float
) -> None:
    alone = RowCandidate((), max(0, limit), arrival)
    choice = choose([alone], cost, other_rows, False, 32, may_wait=True, rate=rate)
    assert worth_awaiting(arrival, limit, cost, other_rows, 32, rate) == choice.widths[0]


def drafts_at(candidate: RowCandidate, moment: float) -> tuple[float, ...]:
    """The drafts that a request has at this moment, best first."""
    arrival = candidate.arrival
    assert arrival is not None
    late = moment - arrival.first_ms
    come = 1 + int(late / arrival.step_ms + 1e-6) if late >= 0 else 0
    more = [candidate.tip * arrival.acceptance**depth for depth in range(1, come + 1)]
    return tuple(sorted((*candidate.ready, *more), reverse=True))


@given(st.lists(st.tuples(st.integers(0, 16), ARRIVALS), min_size=1, max_size=5), st.booleans(), st.floats(0, 0.5))
def test_a_choice_is_the_best_of_all_waits(ready: list[tuple[int, ExpectedDrafts]], equal: bool, rate: float) -> None:
    """Waits that cannot be worth it are skipped, and none that is."""
    candidates = [chain(0.8, length, arrival) for length, arrival in ready]
    rate = max(rate, len(candidates) / FLOAT(len(candidates)))
    choice = choose(candidates, FLOAT, 0, equal, 64, may_wait=True, rate=rate)
    moments = [arrival.first_ms + steps * arrival.step_ms for _, arrival in ready for steps in range(16)]
    for moment in [0.0, *(moment for moment in moments if moment <= FLOAT(len(candidates)))]:
        there = [RowCandidate(drafts_at(one, moment), one.limit) for one in candidates]
        later = choose(there, FLOAT, 0, equal, 64, may_wait=False, rate=rate)
        assert choice.tokens - rate * choice.ms >= later.tokens - rate * (later.ms + moment) - 1e-6
