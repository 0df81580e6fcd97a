"""The arithmetic of `draftmesh plan`: exact where a formula is closed, and never a promise that its inputs deny."""

import io
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from services.launcher.forecast import fleet_measurements, forecast, plan_report
from services.launcher.forecast.forecast import Agreement, wilson
from shared.errors import StartError
from shared.law.payoff import Measurement, ahead, best, payoff, ready
from shared.law.speedup import (
    RowCosts,
    ahead_speedup,
    alpha_of_counts,
    expected_tokens,
    ready_speedup,
    synchronous_speedup,
)
from shared.wire.messages import DrafterCard, DrafterCounts, Speculation, VerifierCard
from tests.toys import drafter_card

FLAT = ((1, 100.0), (2, 102.0), (16, 130.0))
LINEAR = ((1, 10.0), (2, 20.0), (16, 160.0))
GOOD = Measurement(alpha=0.8, row_ms=FLAT, draft_ms=10.0, round_trip_ms=1.0)


def test_each_way_of_drafting_has_its_formula() -> None:
    row = forecast.at_width(GOOD, 4)
    tokens = (1 - 0.8**5) / (1 - 0.8)
    assert row.tokens == pytest.approx(tokens)
    assert row.rows == pytest.approx(1.08)
    assert row.synchronous == pytest.approx(tokens * 100 / (108 + 4 * 10 + 1))
    assert row.ready == pytest.approx(tokens * 100 / 108)


def test_running_ahead_pays_for_a_start_after_each_miss_alone() -> None:
    """Time per token: a fifth of the rounds starts anew, half a step and a hop away; the others run at full width."""
    tokens = 1.8
    hidden = 0.2 * 100 + 0.8 * 102 / tokens  # a plain step meanwhile
    waiting = 0.2 * (1 + 5 + 10 + 102) + 0.8**2 * 102 / tokens  # for one draft
    assert waiting < hidden
    assert forecast.at_width(GOOD, 1).ahead == pytest.approx(100 / waiting)
    far = Measurement(alpha=0.8, row_ms=FLAT, draft_ms=10.0, round_trip_ms=60.0)
    assert forecast.at_width(far, 1).ahead == pytest.approx(100 / hidden)


def test_perfect_drafts_give_a_token_per_row() -> None:
    costs = RowCosts(dict(FLAT))
    assert ready_speedup(1.0, 7, costs, 0.0) == pytest.approx(8 * 100 / costs(8))
    assert ahead_speedup(1.0, 7, costs, 1.0, 50.0) == pytest.approx(8 * 100 / costs(8))
    assert synchronous_speedup(1.0, 7, costs, 1.0, 50.0) == pytest.approx(8 * 100 / (costs(8) + 57))


def test_useless_drafts_give_plain_speed() -> None:
    assert ahead_speedup(0.0, 4, RowCosts(dict(FLAT)), 1.0, 500.0) == pytest.approx(1.0)


@given(st.floats(0, 1), st.integers(1, 15), st.floats(0.1, 300.0), st.floats(0, 300.0))
def test_nothing_beats_the_drafters_own_speed_or_the_limit_of_the_chain(
    alpha: float, width: int, step: float, away: float
) -> None:
    costs = RowCosts(dict(FLAT))
    for speedup in (
        ready_speedup(alpha, width, costs, step),
        ahead_speedup(alpha, width, costs, step, away),
        synchronous_speedup(alpha, width, costs, step, away),
    ):
        assert 0 < speedup <= expected_tokens(alpha, width) * 1.0000001
    assert ready_speedup(alpha, width, costs, step) <= 100 / step * 1.0000001


@given(st.floats(0, 1), st.floats(0.0, 50.0), st.floats(0, 50.0))
def test_running_ahead_never_expects_more_than_drafts_that_are_always_ready(
    alpha: float, step: float, away: float
) -> None:
    measured = Measurement(alpha=alpha, row_ms=FLAT, draft_ms=step, round_trip_ms=away)
    assert best(ahead(measured)).speedup <= best(ready(measured)).speedup * 1.0000001


def test_the_interval_is_wilsons() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson 1927; Brown et al. 2001
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(50, 50)[0] == pytest.approx(0.9287, abs=1e-4)


def test_agreements_add_up() -> None:
    assert Agreement(10, 5, 7, 8) + Agreement(2, 1, 1, 2) == Agreement(12, 6, 8, 10)
    assert Agreement(10, 5, 7, 8) + Agreement(2, 1) == Agreement(12, 6)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 0.97])
def test_acceptance_is_recovered_from_what_a_fleet_counts(alpha: float) -> None:
    source = random.Random(1)
    width, rounds = 6, 20_000
    accepted = sum(next((i for i in range(width) if source.random() >= alpha), width) for _ in range(rounds))
    assert alpha_of_counts(width * rounds, accepted, rounds) == pytest.approx(alpha, abs=0.01)


def test_acceptance_of_counts_at_its_ends() -> None:
    assert alpha_of_counts(0, 0, 0) == 0.0
    assert alpha_of_counts(30, 0, 10) == 0.0
    assert alpha_of_counts(30, 30, 10) == pytest.approx(1.0)


def test_what_helps_is_computed_and_ordered() -> None:
    slow = Measurement(alpha=0.9, row_ms=FLAT, draft_ms=80.0, round_trip_ms=1.0)
    found = forecast.improvements(slow)
    gains = [improvement.speedup for improvement in found]
    assert gains == sorted(gains, reverse=True)
    assert found[0].change == "a drafter twice as fast"
    assert min(gains) > payoff(slow).expected


def test_a_far_drafter_is_told_about_its_round_trip() -> None:
    far = Measurement(alpha=0.8, row_ms=FLAT, draft_ms=1.0, round_trip_ms=80.0)
    changes = {improvement.change: improvement.speedup for improvement in forecast.improvements(far)}
    near = Measurement(alpha=0.8, row_ms=FLAT, draft_ms=1.0, round_trip_ms=0.0)
    assert changes["no round trip to the drafter"] == payoff(near).expected


def test_a_lower_temperature_and_a_second_guess_help_where_they_were_measured() -> None:
    hot = Measurement(alpha=0.5, row_ms=FLAT, draft_ms=1.0, round_trip_ms=0.0)
    changes = [improvement.change for improvement in forecast.improvements(hot, 0.8, (0.0, 0.9))]
    assert "temperature 0 (alpha 0.90)" in changes
    assert "a second guess at each place (a tree)" in changes
    assert not any("second guess" in i.change for i in forecast.improvements(GOOD))


def test_dear_rows_ask_for_cheap_ones() -> None:
    dear = Measurement(row_ms=LINEAR, alpha=0.95, draft_ms=1.0)
    assert [i.change for i in forecast.improvements(dear)] == ["rows as cheap as an AMD MI50's (27B, Q8_0)"]


# ---------------------------------------------------------------- from a fleet


def verifier(*drafters: DrafterCounts) -> VerifierCard:
    return VerifierCard(
        id="v", host="h", pid=1, model="big", fingerprint="f", vocabulary="w", n_vocab=8, n_ctx=64, slots=1,
        device="cuda:0", exactness="law", exactness_note="", layout="unified", speculation=Speculation.AUTO,
        row_ms=FLAT, drafters=drafters,
    )  # fmt: skip


def counts(name: str, drafted: int, accepted: int, rounds: int) -> DrafterCounts:
    return DrafterCounts(drafter=name, drafted=drafted, accepted=accepted, rounds=rounds, stale=0)


def card(name: str, rate: float, kind: str = "model") -> DrafterCard:
    plain = drafter_card(name, kind)
    return DrafterCard(
        **{field: getattr(plain, field) for field in plain.__struct_fields__} | {"tokens_per_second": rate}
    )


def test_a_fleets_cards_take_the_place_of_a_probe() -> None:
    found = fleet_measurements.from_cards(
        [verifier(counts("d", 400, 200, 100), counts("gone", 9, 9, 9)), card("d", 50.0)], 0.5
    )
    assert [prospect.measurement.draft_ms for prospect in found.prospects] == [20.0]
    assert found.prospects[0].agreement.alpha == pytest.approx(alpha_of_counts(400, 200, 100), abs=0.01)
    plain = plan_report.describe(found)
    assert plain["source"] == "fleet"
    assert plain["drafts"][0]["best_of_two"] is None


def test_a_drafter_that_is_idle_has_no_speed_and_that_is_said() -> None:
    found = fleet_measurements.from_cards([verifier(counts("d", 400, 200, 100)), card("d", 0.0)], 0.5)
    assert found.prospects[0].measurement.draft_ms == 0.0
    assert ["is idle now" in note for note in found.notes] == [True]


@pytest.mark.parametrize("cards", [[], [verifier()], [verifier(counts("d", 0, 0, 0)), card("d", 1.0)]])
def test_a_fleet_that_has_measured_nothing_is_an_error(cards: list[VerifierCard | DrafterCard]) -> None:
    with pytest.raises(StartError, match=r"^--redis names a fleet "):
        fleet_measurements.from_cards(list(cards), 0.5)


def test_the_tables_and_the_json_say_the_same() -> None:
    prospects = [
        plan_report.Prospect(
            draft="small",
            device="cpu",
            temperature=t,
            agreement=Agreement(100, hits, 90, 95),
            measurement=Measurement(row_ms=FLAT, alpha=hits / 100, draft_ms=10.0, round_trip_ms=0.5),
        )
        for t, hits in ((0.0, 80), (1.0, 60))
    ]
    found = plan_report.Outlook(target="big", device="cpu", row_ms=dict(FLAT), source="probe", prospects=prospects)
    plain = plan_report.describe(found)
    assert json.loads(json.dumps(plain))["drafts"][0]["alpha"] == 0.8
    warm = plain["drafts"][1]
    assert any(change["change"].startswith("temperature 0") for change in warm["improvements"])
    console = Console(width=100, record=True, file=io.StringIO())
    plan_report.show(console, plain)
    text = console.export_text()
    assert warm["verdict"] in text.replace("\n", " ")
    assert f"{warm['best']['ready']['speedup']:.2f}" in text
    assert "0.80 (0.71–0.87)" in text
