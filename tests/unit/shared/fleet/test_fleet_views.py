"""`ps`, `top` and `status --json`: what they make of fixed facts, at several widths, and the loop of `top`."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from io import StringIO

import msgspec
import pytest
from msgspec import structs
from rich.console import Console

from services.launcher.look import figures, ps, top_frame
from services.launcher.look.top import Top
from services.launcher.look.top_frame import TopView, render
from shared.fleet.describe import describe
from shared.fleet.fleet_values import FleetStatus
from shared.wire.broker import BrokerError
from shared.wire.messages import Card, RequestStatus
from tests import fleet_cards
from tests.fleet_cards import GATEWAY

NOW = 1_000_000.0
VERIFIER = structs.replace(
    fleet_cards.VERIFIER,
    tokens_per_second=39.06,
    created=int(NOW) - 7500,
    requests=(
        RequestStatus(request_id="req-1", offset=17, tokens_per_round=3.4, drafters=("drafter-box-12-bb",)),
        RequestStatus(request_id="req-2", offset=3, tokens_per_round=1.0, reason="the drafter reads the prompt"),
    ),
)
DRAFTER = structs.replace(fleet_cards.DRAFTER, created=int(NOW) - 40)
CARDS: tuple[Card, ...] = (DRAFTER, GATEWAY, VERIFIER)
VIEW = TopView(fleet=describe(CARDS), speeds=(0.0, 10.0, 20.0, 39.06), now=NOW)
NOBODY = describe([])


def lines(view: TopView, width: int, height: int = 50) -> list[str]:
    file = StringIO()
    Console(file=file, width=width, height=height).print(render(view, width, height))
    return [line.rstrip() for line in file.getvalue().splitlines()]


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7500, "2 h 5 min"), (100_000, "1 d 3 h")],
)
def test_an_age_is_told_in_its_largest_units(seconds: float, text: str) -> None:
    assert figures.age(seconds) == text


def test_a_sparkline_stands_on_zero_and_shows_the_latest() -> None:
    assert figures.sparkline([9, 0, 5, 10], 3) == "▁▅█"
    assert figures.sparkline([1], 3) == "  █"
    assert figures.sparkline([0, 0], 2) == "▁▁"
    assert figures.sparkline([], 2) == "  "
    assert figures.sparkline([1], 0) == ""


def test_what_others_call_themselves_cannot_move_the_cursor() -> None:
    assert figures.shown("model", "a\x1b[2Jb\nc\x9b") == "a�[2Jb�c�"
    assert figures.shown("drafters", ["a\x1b", "b"]) == "a�, b"


# ---------------------------------------------------------------- ps


def listed(cards: tuple[Card, ...]) -> list[list[str]]:
    file = StringIO()
    Console(file=file, width=200).print(ps.table(describe(cards).processes, NOW))
    return [re.split(r"\s{2,}", line.strip()) for line in file.getvalue().splitlines()]


def test_ps_has_one_line_per_process() -> None:
    assert listed(CARDS) == [
        ["NAME", "KIND", "MODEL", "DEVICE", "LOAD", "TOK/S", "SINCE"],
        ["drafter-box-12-bb", "drafter", "small-1b", "cpu", "1 of 8 requests", "50.0", "40 s"],
        ["gateway-box-13-cc", "gateway", "–", "–", "2 streams", "–", "–"],
        ["verifier-box-11-aa", "verifier", "big-model-70b", "cuda:0", "2 of 8 requests", "39.1", "2 h 5 min"],
    ]


# ---------------------------------------------------------------- status --json


def test_the_json_of_a_fleet_is_what_scripts_rely_on() -> None:
    described = msgspec.to_builtins(describe(CARDS))
    assert set(described) >= {"processes", "verifiers", "drafters", "requests"}
    assert set(described["processes"][0]) >= {
        *("kind", "id", "host", "pid", "device", "model", "load", "tokens_per_second", "created")
    }
    assert described["processes"][1]["url"] == "http://127.0.0.1:7071"
    assert described["requests"][1]["reason"] == "the drafter reads the prompt"
    assert described["drafters"][0]["acceptance_rate"] == 0.75


# ---------------------------------------------------------------- one frame


@pytest.mark.parametrize("width", [20, 60, 100, 160])
def test_no_line_of_a_frame_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, lines(VIEW, width))) <= width


@pytest.mark.parametrize("width", [60, 100, 160])
def test_a_frame_tells_speed_drafters_and_reasons_at_every_width(width: int) -> None:
    text = "\n".join(lines(VIEW, width))
    assert text.startswith("draftmesh  39.1 tok/s, 2 requests")
    for fact in ("verifier 11", "2 of 8 requests", "75%", "4.0", "90", "req-2", "the drafter"):
        assert fact in text
    assert "q quits" in text


@pytest.mark.parametrize("width", [60, 80, 100, 130, 160])
def test_names_give_way_and_figures_do_not(width: int) -> None:
    long = structs.replace(DRAFTER, model="a-very-long-name-of-a-model" * 3)
    text = "\n".join(lines(replace(VIEW, fleet=describe((long, GATEWAY, VERIFIER))), width))
    for heading in ("accepted", "tok/round", "added", "tok/s", "75%"):
        assert heading in text


def test_wide_frames_tell_more() -> None:
    narrow, medium, wide = ("\n".join(lines(VIEW, width)) for width in (60, 100, 160))
    for fact in ("2 h 5 min", "cuda:0", "drafted"):
        assert fact not in narrow
        assert fact in medium
    assert "stale" not in medium
    assert "stale" in wide


def test_columns_of_which_nobody_knows_anything_are_left_out() -> None:
    assert "round trip" not in "\n".join(lines(VIEW, 160))
    rows = tuple(structs.replace(row, round_trip_ms=1.5) for row in VIEW.fleet.drafters)
    assert "round trip" in "\n".join(lines(replace(VIEW, fleet=structs.replace(VIEW.fleet, drafters=rows)), 160))


@pytest.mark.parametrize("height", [5, 10, 14, 20])
def test_a_frame_fits_and_counts_what_does_not(height: int) -> None:
    many = structs.replace(
        VERIFIER,
        requests=tuple(RequestStatus(request_id=f"r{n}", offset=n, tokens_per_round=1.0) for n in range(40)),
    )
    shown = lines(replace(VIEW, fleet=describe((DRAFTER, GATEWAY, many))), 100, height)
    assert len(shown) <= height
    assert re.match(r"and \d+ more", shown[-1])
    assert any("tokens" in line.split() for line in shown)


def test_machines_are_told_apart_where_there_are_several() -> None:
    other = structs.replace(DRAFTER, id="drafter-attic-9-dd", host="attic", pid=9)
    text = "\n".join(lines(replace(VIEW, fleet=describe((*CARDS, other))), 100))
    assert "drafter 9 on attic" in text
    assert "verifier 11 on box" in text


def test_an_empty_fleet_says_what_to_do() -> None:
    assert any("`draftmesh up`" in line for line in lines(TopView(fleet=NOBODY, speeds=(), now=NOW), 100))


def test_the_verdict_stands_below_the_headline_where_there_is_one() -> None:
    told = structs.replace(VIEW.fleet, verdict="1 drafter: 2.4× plain")
    assert lines(replace(VIEW, fleet=told), 60)[1] == told.verdict


def test_old_facts_are_marked_as_such() -> None:
    assert "Redis is away" in lines(replace(VIEW, trouble="Redis is away"), 60)


# ---------------------------------------------------------------- the loop


class Seconds:
    """A clock that goes on at each pause; `after` is called with the number of pauses."""

    def __init__(self, after: Callable[[int], object]) -> None:
        self.now = NOW
        self._after = after
        self._pauses = 0

    def __call__(self) -> float:
        return self.now

    async def pause(self) -> None:
        self.now += 1.0
        self._pauses += 1
        self._after(self._pauses)


def readings(*results: FleetStatus | Exception) -> Callable[[], Awaitable[FleetStatus]]:
    left = list(results)

    async def read() -> FleetStatus:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return read


async def test_the_loop_shows_each_reading_and_keeps_the_speeds() -> None:
    views: list[TopView] = []
    busy = describe(CARDS)
    clock = Seconds(lambda pauses: top.stop() if pauses == 3 else None)
    top = Top(readings(NOBODY, busy, busy), views.append, clock)
    await top.run(clock.pause)
    assert [view.now - NOW for view in views] == [0.0, 1.0, 2.0]
    assert views[-1].speeds == (0.0, 39.06, 39.06)


async def test_while_redis_is_away_the_latest_facts_stay_and_it_goes_on() -> None:
    views: list[TopView] = []
    busy = describe(CARDS)
    clock = Seconds(lambda pauses: top.stop() if pauses == 4 else None)
    top = Top(readings(busy, BrokerError("redis://x", "gone"), TimeoutError(), busy), views.append, clock)
    await top.run(clock.pause)
    assert [bool(view.trouble) for view in views] == [False, True, True, False]
    assert all(view.fleet == busy for view in views)
    assert len(views[-1].speeds) == 2


async def test_stop_ends_the_loop_without_another_second() -> None:
    shown = 0

    def show(_: TopView) -> None:
        nonlocal shown
        shown += 1
        top.stop()

    top = Top(readings(NOBODY), show)
    await top.run()
    assert shown == 1


async def test_another_size_of_the_terminal_is_shown_at_once() -> None:
    views: list[TopView] = []
    top = Top(readings(NOBODY), views.append, lambda: NOW)

    def resized(_: int) -> None:
        top.redraw()
        top.stop()

    clock = Seconds(resized)
    await top.run(clock.pause)
    assert views[0] == views[1]


def test_the_total_speed_is_that_of_all_verifiers() -> None:
    two = describe((VERIFIER, structs.replace(VERIFIER, id="v2")))
    assert top_frame.total_speed(two) == pytest.approx(78.12)
