"""Joining a fleet: the address, the token, and what is said of the drafter's worth."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from services.launcher.fleet import join
from services.launcher.fleet.fleet_notice import AnnouncedFleet
from services.launcher.fleet.join import address, discover, given
from services.launcher.fleet.machines import Token
from services.launcher.forecast.join_report import JoinReport, expectation, gain
from shared.errors import StartError
from shared.wire.messages import DrafterCard, DrafterCounts, VerifierCard
from tests.service.scripted import card
from tests.toys import drafter_card

ROWS = ((1, 100.0), (8, 130.0), (16, 160.0))
PID = 7


def drafter(**changes: Any) -> DrafterCard:
    values = {"host": "box", "pid": PID, "kind": "model", "model": "tiny", "n_vocab": 49152, "step_ms": 10.0}
    return replace(drafter_card("d"), **{**values, **changes})


def verifier(*counts: DrafterCounts, **changes: Any) -> VerifierCard:
    return card(model="big", row_ms=ROWS, drafters=counts, **changes)


def counts(accepted: int = 0, rounds: int = 0, drafter: str = "d") -> DrafterCounts:
    return DrafterCounts(drafter=drafter, drafted=rounds * 4, accepted=accepted, rounds=rounds, stale=0, added=accepted)


PASSWORD = "a-password-of-some-length"
TOKEN = Token("laptop", PASSWORD)


@pytest.mark.parametrize(
    ("url", "token", "expected"),
    [
        ("redis://h:1/0", None, "redis://h:1/0"),
        ("redis://h:1/0", TOKEN, f"redis://drafter-laptop:{PASSWORD}@h:1/0"),
        ("rediss://h", TOKEN, f"rediss://drafter-laptop:{PASSWORD}@h"),
        ("redis://u:p@h", TOKEN, "redis://u:p@h"),
        ("h:1", TOKEN, "h:1"),
    ],
)
def test_the_token_is_the_user_and_the_password(url: str, token: Token | None, expected: str) -> None:
    assert address(url, token) == expected


def test_a_token_comes_from_a_file_or_the_environment_and_from_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given("") is None
    monkeypatch.setenv("DRAFTMESH_TOKEN", f"desk.{PASSWORD}")
    assert given("") == Token("desk", PASSWORD)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert given(str(file)) == TOKEN
    for bad in ("short", PASSWORD, f"laptop.{PASSWORD} x", f"Laptop.{PASSWORD}", "laptop.", "\x00"):
        file.write_text(bad)
        with pytest.raises(StartError, match="token ") as caught:
            given(str(file))
        assert PASSWORD not in str(caught.value)
    with pytest.raises(StartError, match=r"--token-file .* cannot be read"):
        given(str(tmp_path / "none"))
    assert PASSWORD not in repr(TOKEN)


@pytest.mark.parametrize(
    ("fleets", "complaint"),
    [
        ([], "no fleet announces itself in this network; give the address, as in draftmesh join redis://"),
        ([AnnouncedFleet("a", "h", 1), AnnouncedFleet("b", "h", 2)], "there are 2 fleets; say which one"),
    ],
)
def test_what_the_network_cannot_tell_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, fleets: list[AnnouncedFleet], complaint: str
) -> None:
    async def search() -> list[AnnouncedFleet]:
        return fleets

    monkeypatch.setattr("services.launcher.fleet.beacon.search", search)
    said: list[str] = []
    with pytest.raises(StartError, match=complaint):
        discover(said.append)
    assert [line for line in said if line.startswith("found")] == [f"found {fleet}" for fleet in fleets]


def test_the_only_fleet_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def search() -> list[AnnouncedFleet]:
        return [AnnouncedFleet("a", "fd00::1", 7072)]

    monkeypatch.setattr("services.launcher.fleet.beacon.search", search)
    assert discover(lambda _: None) == "redis://[fd00::1]:7072/0"


def test_a_drafter_that_waits_for_the_first_verifier_says_so() -> None:
    report = JoinReport("box", 1.0)
    assert report.lines([], PID, 0) == ["no verifier is there yet; waiting for one"]
    assert report.lines([], PID, 1) == []
    assert report.lines([drafter()], PID, 2) == ["drafting with tiny on cpu, 100 tokens/s alone"]


def test_a_drafter_is_told_of_as_it_becomes_known_and_once() -> None:
    report = JoinReport("box", 1.0)
    assert report.lines([verifier()], PID, 0) == []
    assert report.lines([drafter()], PID, 1) == [
        "drafting with tiny on cpu, 100 tokens/s alone",
        "no verifier is there yet; waiting for one",
    ]
    assert report.lines([drafter(), verifier()], PID, 2) == []
    lines = report.lines([drafter(), verifier(counts())], PID, 3)
    assert lines[0] == "vocabulary matches big (49,152 tokens)"
    assert lines[1].startswith("should raise big from 10.0 to ")
    assert report.lines([drafter(), verifier(counts())], PID, 4) == []
    assert report.lines([drafter(host="other"), verifier(counts())], PID, 5) == []


def test_a_refusal_names_what_differs() -> None:
    report = JoinReport("box", 1.0)
    refused = verifier(refused=(("d", "token 7 is b'a', not b'b'"),))
    assert report.lines([drafter(), refused], PID, 0)[1:] == ["cannot draft for big: token 7 is b'a', not b'b'"]


def test_the_gain_is_told_at_once_and_then_when_it_changed_and_not_often() -> None:
    report = JoinReport("box", 1.0)
    report.lines([drafter(), verifier(counts())], PID, 0)
    assert report.lines([drafter(), verifier(counts(0, 3))], PID, 1) == []
    assert report.lines([drafter(), verifier(counts(6, 3))], PID, 2) == ["big: adds 2.0 tokens per round, x2.6"]
    assert report.lines([drafter(), verifier(counts(9, 3))], PID, 31) == []
    assert report.lines([drafter(), verifier(counts(9, 3))], PID, 32) == ["big: adds 3.0 tokens per round, x3.4"]
    assert report.lines([drafter(), verifier(counts(9, 3))], PID, 99) == []


def test_a_verifier_that_leaves_and_comes_back_is_met_anew() -> None:
    report = JoinReport("box", 1.0)
    report.lines([drafter(), verifier(counts())], PID, 0)
    assert report.lines([drafter()], PID, 1) == ["big: its verifier left", "no verifier is there yet; waiting for one"]
    assert report.lines([drafter(), verifier(counts(), id="again")], PID, 2)[0].startswith("vocabulary matches")


def test_what_to_expect_follows_from_rows_steps_and_round_trip() -> None:
    near = expectation(drafter(), verifier(), 1.0)
    far = expectation(drafter(), verifier(), 200.0)
    assert near.endswith("if 70% of its guesses are right")
    assert number(near) > number(far) > 10.0
    seen = verifier(counts(40, 10, "alike"))
    assert "if 100% of" in expectation(drafter(), seen, 1.0, {"alike"})
    assert "if 70% of" in expectation(drafter(), seen, 1.0, {"another"})


def number(line: str) -> float:
    return float(line.partition(" to ")[2].partition(" ")[0])


def test_what_cannot_pay_is_said_with_the_reason() -> None:
    dear = card(model="big", row_ms=((1, 100.0), (8, 800.0), (16, 1600.0)))
    assert expectation(drafter(), dear, 1.0).startswith("will not pay for big here: rows cost too much here")
    slow = expectation(drafter(step_ms=900.0), verifier(), 1.0)
    assert "drafts come too late" in slow
    assert "not measured yet" in expectation(drafter(step_ms=0.0), verifier(), 1.0)


def test_a_gain_counts_what_rows_cost() -> None:
    assert gain(card(model="m"), counts(8, 4)) == "m: adds 2.0 tokens per round, x3.0"
    assert gain(verifier(), counts(8, 4)) == "big: adds 2.0 tokens per round, x2.6"


def test_what_others_guessed_too_is_no_gain() -> None:
    assert gain(verifier(), replace(counts(8, 4), added=0)) == "big: adds 0.0 tokens per round, x1.0"
    assert gain(verifier(), replace(counts(8, 4), added=4)) == "big: adds 1.0 tokens per round, x1.4"


@pytest.mark.parametrize(("status", "kept"), [(0, False), (1, True), (2, False)])
def test_only_after_a_failure_the_drafters_log_is_kept(
    status: int,
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def reach(_: str) -> float:
        return 1.0

    async def end(_: join.JoinedDrafter) -> int:
        return status

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(join, "_reach", reach)
    monkeypatch.setattr(join.JoinedDrafter, "run", end)
    assert join.run("redis://127.0.0.1:1/0", token_file="", draft_model="", arguments=(), environment={}) == status
    assert len(list(tmp_path.glob("draftmesh-*"))) == kept
    assert ("the drafter's log is kept in" in capsys.readouterr().out) == kept
