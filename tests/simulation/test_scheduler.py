"""What the engine reaches in simulated time, against closed formulas (Leviathan et al. 2023) and a renewal process."""

from itertools import product

import pytest

from shared.law.speedup import RowCosts, ahead_speedup
from shared.wire.messages import Site
from tests.simulation import renewal
from tests.simulation.world import PLAIN_MS, TAIL, World, coins

ALPHAS = (0.5, 0.7, 0.8, 0.9, 0.95)
STEPS = (0.02, 0.1, 0.3)  # c: a drafter's token, in plain steps of the target
ROUND_TRIPS = (0.0, 0.25, 1.0)  # rho, likewise
TOLERANCE = 0.03
# The scheduler maximises the round at hand. The formula's rule of waiting knows acceptance and what a round leaves for
# the next ones; this share of it is reached everywhere, and more than 0.97 of it on average.
SHORT_SIGHT = 0.9
WARM_UP = 400  # tokens: meanwhile the verifier learns acceptance and round trips


def linear(beta: float) -> RowCosts:
    """v(k) = 1 + beta (k - 1) plain steps."""
    return RowCosts({rows: PLAIN_MS * (1 + beta * (rows - 1)) for rows in (1, 2, 33, 600)})


USUAL = linear(0.08)
FLAT = linear(0.02)
STAIRS = RowCosts({1: 10.0, 2: 14.0, 4: 16.0, 8: 21.0, 9: 30.0, 16: 33.0, 32: 60.0, 600: 1000.0})  # a kernel's borders
DEAR = linear(0.97)
ONE_CORE = Site(machine="boot-1", cores="1", threads=1, most=1)


def tokens(alpha: float, width: int) -> float:
    """E: tokens per round of `width` drafts, the target's own included."""
    return sum(alpha**position for position in range(width + 1))


def always_ready(alpha: float, cost: RowCosts) -> float:
    """Speed-up with drafts always there, at the best width."""
    return max(tokens(alpha, width) * cost(1) / cost(width + 1) for width in range(33))


def synchronous(alpha: float, cost: RowCosts, step: float, round_trip: float) -> float:
    """Speed-up of draft, then verify, then draft, at the best width; 1 where plain decoding is better."""
    drafting = (
        tokens(alpha, width) * cost(1) / (cost(width + 1) + (step * width + round_trip) * cost(1))
        for width in range(1, 33)
    )
    return max(1.0, *drafting)


def running_ahead(alpha: float, cost: RowCosts, step: float, round_trip: float) -> float:
    """Speed-up of one chain drafted ahead, at the best width; 1 where plain decoding is better."""
    ms = (step * cost(1), round_trip * cost(1))
    return max(1.0, *(ahead_speedup(alpha, width, cost, *ms) for width in range(1, 33)))


def simulate(alpha: float, cost: RowCosts, step: float, round_trip: float, answer: int = 1000) -> float:
    """The speed-up that the engine reaches."""
    # A run between misses is worth many coins: they are stratified, so some hundred agree with the formula.
    misses = max(100, int(answer * (1 - alpha)))
    counted = coins(alpha, misses, seed=3)
    right = [*(coins(alpha, WARM_UP, seed=2)[:WARM_UP]), *counted, *([False] * TAIL)]
    world = World(cost, right, step * PLAIN_MS, round_trip * PLAIN_MS / 2)
    return world.run(WARM_UP)


@pytest.mark.parametrize("cost", [USUAL, FLAT, STAIRS], ids=["usual", "flat", "stairs"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_drafts_that_are_always_ready_give_the_closed_formula(alpha: float, cost: RowCosts) -> None:
    reached = simulate(alpha, cost, step=0.0, round_trip=0.0)
    assert reached == pytest.approx(always_ready(alpha, cost), rel=TOLERANCE)


@pytest.mark.parametrize(("step", "round_trip"), list(product(STEPS, ROUND_TRIPS)))
def test_running_ahead_lies_between_the_synchronous_formula_and_the_ideal(step: float, round_trip: float) -> None:
    """And never below plain decoding, however slow the drafter and however long the way."""
    for alpha in ALPHAS:
        reached = simulate(alpha, USUAL, step, round_trip)
        assert reached >= (1 - TOLERANCE) * synchronous(alpha, USUAL, step, round_trip), f"alpha {alpha}"
        assert reached <= (1 + TOLERANCE) * always_ready(alpha, USUAL), f"alpha {alpha}"
        assert reached >= SHORT_SIGHT * running_ahead(alpha, USUAL, step, round_trip), f"alpha {alpha}"


@pytest.mark.parametrize("cost", [USUAL, FLAT], ids=["usual", "flat"])
@pytest.mark.parametrize(("step", "round_trip"), [(0.02, 0.0), (0.1, 0.0), (0.3, 0.0), (0.02, 0.25), (0.1, 0.25)])
def test_the_formula_for_running_ahead_is_what_the_best_rule_of_waiting_reaches(
    step: float, round_trip: float, cost: RowCosts
) -> None:
    for alpha in (0.5, 0.8, 0.95):
        lengths = renewal.run_lengths(coins(alpha, max(100, int(800 * (1 - alpha))), seed=3))
        best, _ = renewal.best_rate(cost, step * PLAIN_MS, round_trip * PLAIN_MS / 2, lengths)
        formula = running_ahead(alpha, cost, step, round_trip)
        assert formula == pytest.approx(best * PLAIN_MS, rel=TOLERANCE), f"alpha {alpha}"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_where_rows_are_too_dear_the_engine_decodes_plainly(alpha: float, step: float) -> None:
    reached = simulate(alpha, DEAR, step, round_trip=0.25, answer=1200)
    assert reached == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(("step", "round_trip"), [(0.02, 0.0), (0.05, 0.02), (0.1, 0.02)])
def test_turns_on_the_same_cores_reach_the_synchronous_formula(step: float, round_trip: float) -> None:
    """And the drafter hardly ever computes while the target does."""
    for alpha in ALPHAS:
        misses = max(100, int(1000 * (1 - alpha)))
        right = [*(coins(alpha, WARM_UP, seed=2)[:WARM_UP]), *coins(alpha, misses, seed=3), *([False] * TAIL)]
        world = World(USUAL, right, step * PLAIN_MS, round_trip * PLAIN_MS / 2, site=ONE_CORE)
        reached = world.run(WARM_UP)
        assert reached >= (1 - TOLERANCE) * synchronous(alpha, USUAL, step, round_trip), f"alpha {alpha}"
        assert world.beside <= 0.05 * len(right), f"alpha {alpha}"


@pytest.mark.parametrize("round_trip", [0.25, 1.0])
def test_a_drafter_slower_than_the_target_costs_nothing(round_trip: float) -> None:
    reached = simulate(0.5, USUAL, step=1.5, round_trip=round_trip)
    assert reached >= 1 - TOLERANCE


@pytest.mark.parametrize(
    ("step", "round_trip"),
    [
        (0.02, 0.0),
        (0.02, 0.25),
        (0.1, 0.25),
        (0.1, 1.0),
        (0.3, 0.25),
    ],
)
def test_a_good_drafter_that_falls_silent_is_soon_not_waited_for(step: float, round_trip: float) -> None:
    """It died or the network parted; its card lives on for ten seconds, and no round may wait for it meanwhile."""
    right = [*coins(0.8, WARM_UP, seed=2)[:WARM_UP], *([True] * 300)]
    world = World(USUAL, right, step * PLAIN_MS, round_trip * PLAIN_MS / 2, silent_from=WARM_UP)
    assert world.run(WARM_UP) >= 1 - TOLERANCE
