"""When a process counts as dead: after a silence that was heard without a break."""

import math

from shared.fleet.liveness import Liveness

GONE = math.inf


def silence() -> Liveness:
    return Liveness(limit_s=7.0, away_s=3.0)


def watch(one: Liveness, ages: list[tuple[float, float]]) -> list[set[str]]:
    """The verdicts on "g", asked at each time with its age then."""
    return [one.dead(now, {"g": age}) for now, age in ages]


def test_a_process_that_is_renewed_lives() -> None:
    assert watch(silence(), [(now, now % 2) for now in range(60)]) == [set()] * 60


def test_one_that_falls_silent_is_dead_after_the_limit_since_it_was_last_heard() -> None:
    verdicts = watch(silence(), [(0, 0.5), *((now, now + 0.5 if now < 9 else GONE) for now in range(1, 10))])
    assert verdicts == [set()] * 7 + [{"g"}] * 3


def test_one_without_a_card_gets_the_limit_from_when_it_was_first_asked_about() -> None:
    assert watch(silence(), [(now, GONE) for now in range(100, 109)]) == [set()] * 7 + [{"g"}] * 2


def test_an_outage_starts_every_silence_anew() -> None:
    one = silence()
    assert watch(one, [(now, now) for now in range(7)])[-1] == set()
    one.forget()
    assert watch(one, [(7, GONE), (8, GONE)]) == [set(), set()]


def test_time_in_which_nobody_asked_does_not_count() -> None:
    assert watch(silence(), [(0, 0), (2, 2), (30, GONE), (32, 0.1)]) == [set()] * 4


def test_a_clock_that_jumps_for_the_server_alone_kills_nobody() -> None:
    """A suspended machine: the server's clock went on, ours did not."""
    assert watch(silence(), [(0, 1), (1, 2), (2, 3600), (3, 0.5)]) == [set()] * 4


def test_processes_that_nobody_asks_about_are_forgotten() -> None:
    one = silence()
    assert one.dead(0, {"a": GONE, "b": 0.0}) == set()
    assert one.dead(2, {"b": 0.0}) == set()
    assert [one.dead(now, {"a": GONE, "b": 0.0}) for now in (4, 6, 8, 10)] == [set()] * 4
    assert one.dead(11, {"a": GONE, "b": 0.0}) == {"a"}
