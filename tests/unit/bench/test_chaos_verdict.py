"""What a chaos run may see and what it must not: a check that lets everything pass would prove nothing."""

from typing import Any

import pytest

from tests.chaos.faults import schedule
from tests.chaos.questions import Reference, questions
from tests.chaos.records import End, Ending, Fault, Kind, Request
from tests.chaos.verdict import deaths, faulty, recovery_s

RIGHT = Reference(tokens=(5, 6, 7), finish="length")


def request(ending: Ending = Ending.FINISHED, **changes: Any) -> Request:
    values: dict[str, Any] = {"question": 0, "gateway": "g1", "began": 10.0, "ended": 20.0, "ending": ending}
    if ending is Ending.FINISHED:
        values |= {"tokens": [5, 6, 7], "arrivals": [11.0, 12.0, 19.0], "finishes": ["length"], "marks": 1}
    if ending is Ending.FAILED:
        values |= {"tokens": [5], "errors": ["request_lost"], "marks": 1}
    if ending is Ending.REFUSED:
        values |= {"status": 503, "retry_after": True}
    return Request(**values | changes)


def fault(kind: Kind, target: str = "t", began: float = 15.0, ended: float = 16.0) -> Fault:
    return Fault(kind=kind, target=target, began=began, ended=ended)


def lines(one: Request, *faults: Fault) -> list[str]:
    return faulty([one], faults, [RIGHT])


@pytest.mark.parametrize(
    ("one", "faults"),
    [
        (request(), []),
        (request(), [fault(kind) for kind in Kind]),
        (request(Ending.LEFT, tokens=[5]), []),
        (request(Ending.FAILED), [fault(Kind.EMPTY_REDIS)]),
        (request(Ending.CUT, tokens=[5, 6]), [fault(Kind.KILL_GATEWAY, "g1")]),
        (request(Ending.UNREACHABLE), [fault(Kind.KILL_GATEWAY, "g1", 1.0, 9.0)]),
        (request(Ending.REFUSED), [fault(Kind.RESTART_REDIS)]),
        (request(Ending.REFUSED, status=429), [fault(Kind.LOSE_REPLIES)]),
    ],
)
def test_what_may_be_seen(one: Request, faults: list[Fault]) -> None:
    assert lines(one, *faults) == []


@pytest.mark.parametrize(
    "one",
    [
        request(tokens=[5, 6, 8]),
        request(tokens=[5, 6]),
        request(tokens=[5, 6, 7, 7]),
        request(tokens=[5, 5, 6]),
        request(finishes=["stop"]),
        request(finishes=["length", "length"]),
        request(errors=["request_lost"]),
        request(marks=2),
        request(after_end=1),
        request(Ending.STUCK),
        request(Ending.LEFT, tokens=[6]),
        request(Ending.FAILED, tokens=[6]),
        request(Ending.FAILED, errors=["request_lost", "request_lost"]),
        request(Ending.FAILED, finishes=["stop"]),
        request(Ending.CUT, finishes=["length"]),
        request(Ending.REFUSED, status=500),
        request(Ending.REFUSED, retry_after=False),
    ],
)
def test_what_no_fault_excuses(one: Request) -> None:
    assert lines(one, *(fault(kind, "g1") for kind in Kind))


@pytest.mark.parametrize(
    ("ending", "excuse"),
    [
        (Ending.FAILED, {Kind.EMPTY_REDIS}),
        (Ending.CUT, {Kind.KILL_GATEWAY}),
        (Ending.UNREACHABLE, {Kind.KILL_GATEWAY}),
        (Ending.REFUSED, {Kind.RESTART_REDIS, Kind.EMPTY_REDIS, Kind.LOSE_REPLIES, Kind.REFUSE}),
    ],
)
def test_a_request_fails_only_where_a_fault_of_the_right_kind_was_felt(ending: Ending, excuse: set[Kind]) -> None:
    assert {kind for kind in Kind if not lines(request(ending), fault(kind, "g1"))} == excuse
    for kind in excuse:
        assert lines(request(ending), fault(kind, "g1", 21.0, 22.0)), "it came later"
        assert lines(request(ending), fault(kind, "g1", 1.0, 3.0)), "it was long over"


def test_another_gateways_death_excuses_nothing() -> None:
    assert lines(request(Ending.CUT), fault(Kind.KILL_GATEWAY, "g2"))


def test_a_service_may_give_up_only_at_a_start_without_redis() -> None:
    refused = End(name="d", moment=15.5, status=2, said="no answer")
    crashed = End(name="d", moment=15.5, status=1, said="oh")
    away = fault(Kind.RESTART_REDIS)
    assert deaths([refused], [away]) == []
    assert len(deaths([refused], [fault(Kind.KILL_DRAFTER)])) == 1
    assert deaths([crashed], [away]) == ["d ended by itself with 1: oh"]


def test_recovery_is_the_longest_wait_of_a_stream_that_flowed() -> None:
    flowing = request(arrivals=[11.0, 12.0, 19.0])
    ending = request(arrivals=[11.0], ended=17.0)
    others = [
        request(arrivals=[16.0, 19.0]),  # had not begun
        request(Ending.CUT, arrivals=[11.0], ended=99.0),
        request(arrivals=[11.0], ended=14.0),
    ]
    assert recovery_s(fault(Kind.KILL_VERIFIER), [flowing, ending, *others]) == 4.0
    assert recovery_s(fault(Kind.KILL_VERIFIER), others) == 0.0


def test_a_schedule_is_its_seeds_and_no_kind_waits_for_another_to_come_twice() -> None:
    first, again, other = schedule(1), schedule(1), schedule(2)
    one = [next(first) for _ in range(3 * len(Kind))]
    assert one == [next(again) for _ in one] != [next(other) for _ in one]
    for start in range(0, len(one), len(Kind)):
        assert {kind for kind, _ in one[start : start + len(Kind)]} == set(Kind)
    assert questions(30, 1) == questions(30, 1) != questions(30, 2)
