"""What `status` says of a fleet, and `up` of its verifiers, by their cards."""

import io

from msgspec import structs
from rich.console import Console

from services.launcher.fleet.up import remarks
from services.launcher.look import status
from shared.fleet.describe import describe
from shared.fleet.fleet_values import DesertedRequests, FleetStatus, NameConflict
from shared.wire.messages import (
    Card,
    Deserted,
    DrafterCard,
    DrafterCounts,
    GatewayCard,
    RequestStatus,
)
from tests import fleet_cards

VERIFIER = structs.replace(
    fleet_cards.VERIFIER,
    model="m",
    exactness="strict",
    exactness_note="bit-equal",
    row_ms=((1, 10.0), (8, 60.0)),
    drafters=(DrafterCounts(drafter="d", drafted=10, accepted=6, rounds=4, stale=2, added=3),),
    refused=(("other", "token 7 differs"),),
    requests=(RequestStatus(request_id="r", offset=5, tokens_per_round=1.0, reason="does not pay"),),
)


def drafter(name: str) -> DrafterCard:
    return structs.replace(fleet_cards.DRAFTER, id=name)


def test_a_drafters_worth_is_told() -> None:
    shown = describe([VERIFIER, drafter("d")]).drafters[0]
    worth = {
        name: getattr(shown, name) for name in ("acceptance_rate", "tokens_per_round", "added", "stale", "refused")
    }
    assert worth == {"acceptance_rate": 0.6, "tokens_per_round": 2.5, "added": 3, "stale": 2, "refused": None}


def test_a_refused_drafter_is_shown_with_the_reason() -> None:
    assert describe([VERIFIER, drafter("other")]).drafters[0].refused == "token 7 differs"


def test_a_drafter_that_nobody_used_yet_is_shown() -> None:
    assert describe([VERIFIER, drafter("new")]).drafters[0].acceptance_rate is None


def test_a_request_says_why_it_is_not_speculating() -> None:
    assert describe([VERIFIER]).requests[0].reason == "does not pay"


def test_names_are_told_with_what_is_wrong_with_them() -> None:
    cards = [structs.replace(VERIFIER, aliases=("fast",)), structs.replace(VERIFIER, id="w", model="o", aliases=("m",))]
    told = describe(cards)
    assert [(one.name, one.model) for one in told.names] == [("m", "m"), ("o", "o"), ("fast", "m")]
    note = "alias 'm' of o has no effect: that is a model's own name"
    assert told.conflicts == (NameConflict(alias="m", model="o", winner="m", note=note),)
    assert note in printed(told)


def test_requests_without_a_verifier_are_told_with_the_reason() -> None:
    deserted = Deserted(model="m", requests=3, reason="its last verifier is gone")
    card = GatewayCard(id="g", host="h", pid=3, url="http://h:1", streams=3, deserted=(deserted,))
    told = describe([card])
    assert told.deserted == (DesertedRequests(gateway="g", model="m", requests=3, reason="its last verifier is gone"),)
    assert "3 requests wait for m: its last verifier is gone" in printed(told)


def test_how_a_verifier_shares_its_cores_with_a_drafter_is_told() -> None:
    assert describe([VERIFIER]).verifiers[0].sharing == ""
    told = describe([structs.replace(VERIFIER, sharing="turns")])
    assert told.verifiers[0].sharing == "turns"
    assert "takes turns with the drafter" in printed(told)


def printed(told: FleetStatus) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    for part in status.tables(told):
        console.print(part)
    return console.export_text()


def test_a_drafter_of_one_model_s_vocabulary_is_no_mistake_where_there_are_several() -> None:
    both = [VERIFIER, structs.replace(VERIFIER, id="w", model="o", refused=())]
    assert ("drafter other cannot draft for m: token 7 differs", "") in remarks(both)
    assert ("refused drafter other: token 7 differs", "red") in remarks([VERIFIER])
    assert remarks(both)[0] == ("m: exactness: strict (bit-equal)", "")


def test_rows_are_told_in_single_steps() -> None:
    assert describe([VERIFIER]).verifiers[0].row_cost == {1: 1.0, 8: 6.0}


def test_the_cost_of_rows_says_where_it_comes_from_and_how_old_it_is() -> None:
    started = structs.replace(VERIFIER, created=1_790_000_000)
    decoded = structs.replace(started, counters={"decodes": 12_345})
    sources = [describe([card]).verifiers[0].row_source for card in (started, decoded)]
    assert sources == ["calibration, checked at 2026-09-21 14:13 UTC", "12,345 decodes since 2026-09-21 14:13 UTC"]


def test_every_kind_of_process_has_its_place_in_the_tables() -> None:
    cards: list[Card] = [
        VERIFIER,
        drafter("d"),
        drafter("other"),
        GatewayCard(id="g", host="h", pid=3, url="http://h:1", streams=2),
    ]
    told = printed(describe(cards))
    for title in (
        "processes",
        "verifiers",
        "drafters",
        "cost of rows, from calibration, checked at the verifier's start",
    ):
        assert f"\n{title}\n" in told
    assert told.startswith("Ready with 1 drafter; nothing has been asked yet.")
    assert f"other is refused by {VERIFIER.id}: token 7 differs" in told


def test_the_tables_of_an_ordinary_fleet_fit_a_terminal() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    for part in status.tables(describe([VERIFIER, drafter("drafter-box-12-bb")])):
        console.print(part)
    assert "drafter-box-12-bb  small-1b" in console.export_text()
