"""`draftmesh bench compare`: what differs comes first, and only like is compared with like."""

from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console
from rich.table import Table

from services.launcher.bench import card as cards
from services.launcher.bench import compare
from services.launcher.bench.card import Card
from services.launcher.bench.compare import Difference
from tests.cards import CARD, spread


def rows(table: Table) -> list[list[str]]:
    return [list(row) for row in zip(*(list(column.cells) for column in table.columns), strict=True)]


def faster(factor: float) -> Card:
    results = tuple(
        structs.replace(one, tokens_per_second=one.tokens_per_second and spread(factor * one.tokens_per_second.mean))
        for one in CARD.results
    )
    return structs.replace(CARD, results=results)


def test_two_equal_measurements_differ_in_nothing() -> None:
    assert compare.differences(CARD, CARD) == []


def test_machine_models_and_settings_that_differ_are_listed() -> None:
    first = structs.replace(CARD.servers[0], model="bigger", drafters=())
    settings = structs.replace(CARD.settings, temperatures=(0.0,))
    other = structs.replace(CARD, draftmesh="0.2.0", settings=settings, servers=(first, CARD.servers[1]))
    assert compare.differences(CARD, other) == [
        Difference("draftmesh", "0.1.0", "0.2.0"),
        Difference("temperatures", "0, 1", "0"),
        Difference("draftmesh: model", "big", "bigger"),
        Difference("draftmesh: drafters", "lookup drafter on cpu, small on cpu", "–"),
    ]


def test_a_server_that_only_one_has_is_a_difference() -> None:
    found = compare.differences(CARD, structs.replace(CARD, servers=CARD.servers[:1]))
    assert Difference("plain: model", "big", "–") in found


def test_the_ratio_is_of_the_means() -> None:
    first = rows(compare.results(CARD, faster(1.5)))[0]
    assert first[:5] == ["chat T=0", "draftmesh", "39.1", "58.7", "1.50"]


def test_cells_that_only_one_has_are_left_out() -> None:
    half = structs.replace(CARD, results=tuple(one for one in CARD.results if one.workload == "edit"))
    assert {row[0] for row in rows(compare.results(CARD, half))} == {"edit T=0", "edit T=1"}
    assert len(rows(compare.results(half, CARD))) == 4


def test_the_measured_servers_are_compared_whatever_they_are_called() -> None:
    servers = (structs.replace(CARD.servers[0], name="llama"), CARD.servers[1])
    results = tuple(structs.replace(one, server="llama") if one.server == "draftmesh" else one for one in CARD.results)
    other = structs.replace(CARD, servers=servers, results=results)
    assert [row[1] for row in rows(compare.results(CARD, other))[:2]] == ["llama", "plain"]


def test_ratios_within_each_measurement_stand_side_by_side() -> None:
    assert rows(compare.comparisons(CARD, CARD))[2] == ["all T=0", "plain", *["2.88 x", "2.16–3.45"] * 2]


def run(one: Card, other: Card, folder: Path) -> int:
    for card, name in ((one, "a"), (other, "b")):
        cards.write(card, folder / f"{name}.json")
    return compare.run(folder / "a.json", folder / "b.json")


def test_the_command_says_what_differs_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CARD, structs.replace(faster(2.0), draftmesh="0.2.0"), tmp_path) == 0
    output = capsys.readouterr().out
    assert output.index("0.2.0") < output.index("tokens per second") < output.index("over its peers")
    assert "B: plain: 1 of 4 requests failed" in output
    assert max(map(len, output.splitlines())) <= Console().width


def test_measurements_without_anything_in_common_have_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(CARD, structs.replace(CARD, results=(), comparisons=()), tmp_path) == 1
    assert "they have no work, temperature and concurrency in common" in capsys.readouterr().out


def test_a_card_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(CARD, structs.replace(CARD, draftmesh="\x1b[2J", remarks=("\x1b[2J",)), tmp_path)
    assert "\x1b" not in capsys.readouterr().out
