"""What the fleet's values say, and the sentence that sums them up."""

import math
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from services.gateway.http.sse import event
from shared.fleet.describe import describe
from shared.fleet.fleet_values import FleetStatus
from shared.wire.messages import (
    Card,
    Deserted,
    DrafterCounts,
    GatewayCard,
    RequestStatus,
    RoundStarts,
    Speculation,
    VerifierCard,
)
from tests.service.scripted import card
from tests.toys import drafter_card

RUNNING = RequestStatus(request_id="r", offset=5, tokens_per_round=2.0, drafters=("d",))
COUNTS = DrafterCounts(drafter="d", drafted=10, accepted=6, rounds=4, stale=2, added=3, round_trip_ms=1.5, asked=6)
FAST: dict[str, Any] = {"tokens_per_second": 41.0, "plain_tokens_per_second": 17.0, "speedup": 2.4}


def gateway(**waiting: int) -> GatewayCard:
    return GatewayCard(id="g", host="h", pid=1, url="http://h:1", streams=0, waiting=tuple(waiting.items()))


def verdict(*cards: Card) -> str:
    return describe(cards).verdict


def test_a_drafter_says_what_it_adds_and_how_far_away_it_is() -> None:
    [row] = describe([card(drafters=(COUNTS,)), drafter_card("d")]).drafters
    assert (row.adds, row.round_trip_ms, row.acceptance_rate) == (0.5, 1.5, 0.6)


def test_what_is_not_known_is_none() -> None:
    fleet = describe([card(), drafter_card("d")])
    assert [getattr(fleet.drafters[0], name) for name in ("adds", "round_trip_ms", "acceptance_rate")] == [None] * 3
    assert [getattr(fleet.totals, name) for name in ("speedup", "tokens_per_round", "waiting")] == [None] * 3


def test_waiting_requests_are_counted_once_however_many_gateways_tell_of_them() -> None:
    fleet = describe([card(model="a"), card(id="v2", model="b"), gateway(a=2, b=1), replace(gateway(a=3), id="g2")])
    assert fleet.totals.waiting == 4
    assert [row.waiting for row in fleet.verifiers] == [3, 1]


def test_totals_weigh_verifiers_by_what_they_do() -> None:
    idle = card(id="v2", speedup=9.0, tokens_per_round=9.0)
    totals = describe([card(**FAST, tokens_per_round=3.0), idle]).totals
    assert totals.speedup == pytest.approx(2.4)
    assert totals.tokens_per_round == pytest.approx(3.0)
    assert describe([idle]).totals.speedup == pytest.approx(9.0)


def test_the_http_schema_holds_whatever_cards_say() -> None:
    full: VerifierCard = card(
        **FAST,
        row_ms=((1, 10.0), (8, 20.0)),
        requests=(RUNNING,),
        drafters=(COUNTS,),
        refused=(("other", "token 7 differs"),),
        starts=(RoundStarts(after="plain", offset=0, rounds=2, ready=1),),
    )
    rival = card(id="v2", model="other", aliases=("smol",))
    lost = replace(gateway(smol=0), deserted=(Deserted(model="gone", requests=2, reason="they wait"),))
    fleet = describe([full, rival, drafter_card("d"), drafter_card("other"), drafter_card("idle", "lookup"), lost])
    assert fleet.conflicts
    assert fleet.deserted
    assert msgspec.json.decode(msgspec.json.encode(fleet), type=FleetStatus) == fleet


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308])
def test_no_number_of_a_card_stops_the_gateway_that_shows_it(value: float) -> None:
    names = ("tokens_per_second", "plain_tokens_per_second", "speedup", "tokens_per_round")
    strange = card(**dict.fromkeys(names, value), row_ms=((1, value), (8, value)), requests=(RUNNING,))
    counts = replace(COUNTS, round_trip_ms=value)
    fleet = describe([strange, replace(strange, id="v2", drafters=(counts,)), drafter_card("d")])
    assert event({"type": "status", **asdict(fleet)})
    assert msgspec.json.encode(fleet)


@pytest.mark.parametrize(
    ("cards", "sentence"),
    [
        ([], "Nothing is served: no verifier is connected."),
        ([card(), drafter_card("d")], "Ready with 1 drafter; nothing has been asked yet."),
        (
            [card()],
            "Ready; nothing has been asked yet. Answers will be decoded plainly: no drafter is connected.",
        ),
        (
            [card(**FAST, requests=(RUNNING,)), drafter_card("d"), drafter_card("e")],
            "2 drafters: 2.4× plain decoding.",
        ),
        ([card(speedup=2.4), drafter_card("d")], "1 drafter: 2.4× plain decoding, when last asked."),
        ([card(speedup=1.0)], "Not faster than plain decoding: no drafter is connected."),
        (
            [card(speedup=1.0, refused=(("d", "token 7 differs"),)), drafter_card("d")],
            "Not faster than plain decoding: the verifier refuses every drafter (token 7 differs).",
        ),
        (
            [card(speedup=1.0, speculation=Speculation.OFF), drafter_card("d")],
            "Not faster than plain decoding: speculation is switched off.",
        ),
        (
            [card(speedup=1.01, requests=(replace(RUNNING, reason="no draft was ready in time"),)), drafter_card("d")],
            "Not faster than plain decoding: no draft was ready in time.",
        ),
        (
            [card(speedup=1.0, row_ms=((1, 10.0), (8, 90.0))), drafter_card("d")],
            "Not faster than plain decoding: rows cost too much here, so even perfect drafts would not pay"
            " (8 rows cost 9.0 single steps).",
        ),
        (
            [card(speedup=1.0, row_ms=((1, 10.0), (8, 20.0))), drafter_card("d")],
            "Not faster than plain decoding: no draft was ready in time.",
        ),
        (
            [card(speedup=1.0, row_ms=((1, 10.0), (8, 20.0)), drafters=(COUNTS,)), drafter_card("d")],
            "Not faster than plain decoding: the drafts are worth no more than the rows that they take.",
        ),
    ],
)
def test_the_verdict(cards: list[Card], sentence: str) -> None:
    assert verdict(*cards) == sentence
