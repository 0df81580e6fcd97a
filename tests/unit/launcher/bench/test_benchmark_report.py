"""`draftmesh bench --report`: the page and the card of a run, and what they do not tell."""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from services.launcher.bench import card, facts
from shared.fleet.describe import describe
from shared.settings import command_line
from shared.wire.messages import Card, VerifierCard
from tests import fleet_cards
from tests.benchmarks import Start, bench, fakes, run
from tests.cards import CARD
from tests.dialects import Fake, llama_server, ours


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)
    with fakes() as start:
        yield start


HOST, USER, MODEL = "attic-box", "carol-s", "/home/carol-s/models/big-Q4.gguf"
DRAFTER = replace(fleet_cards.DRAFTER, id=f"drafter-{HOST}-2-b", host=HOST)
COUNTS = replace(fleet_cards.VERIFIER.drafters[0], drafter=DRAFTER.id)
VERIFIER = replace(fleet_cards.VERIFIER, id=f"verifier-{HOST}-1-a", host=HOST, model=MODEL, drafters=(COUNTS,))


def after(card: VerifierCard, drafted: int, accepted: int) -> VerifierCard:
    counts = card.drafters[0]
    more = replace(counts, drafted=counts.drafted + drafted, accepted=counts.accepted + accepted)
    return replace(card, drafters=(more,))


def a_fleet() -> Fake:
    """A gateway whose fleet verifies 40 drafts while it is measured."""
    cards: tuple[list[Card], ...] = ([VERIFIER, DRAFTER], [after(VERIFIER, 40, 30), DRAFTER])
    statuses = [msgspec.json.decode(msgspec.json.encode(describe(one))) for one in cards]
    return Fake(ours, models={"data": [{"id": MODEL}]}, statuses=statuses)


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: HOST)
    monkeypatch.setattr("getpass.getuser", lambda: USER)


@pytest.mark.usefixtures("somebody")
def test_a_report_is_a_page_and_a_card_with_the_speed_up_by_drafts(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = a_fleet()
    page = tmp_path / "out.html"
    assert bench(monkeypatch, background(fake), "--api-key", "dm-secret", "--report", str(page)) == 0
    made = card.read(tmp_path / "out.json")
    assert [server.name for server in made.servers] == ["draftmesh", "plain"]
    plain = [body for body in fake.asked if body.get("speculative") is False]
    drafted = [body for body in fake.asked if "speculative" not in body]
    assert len(plain) == len(drafted)
    with_drafts, without = ({body["messages"][-1]["content"] for body in bodies} for bodies in (drafted, plain))
    assert not with_drafts & without  # or the second would find its prompt in the prefix cache
    assert {text.partition("\n")[2] for text in with_drafts} == {text.partition("\n")[2] for text in without}
    assert {one.peer for one in made.comparisons} == {"plain"}
    assert made.comparisons[0].total is not None
    assert made.comparisons[0].total.pairs == 2
    assert made.servers[0].verifiers is not None
    assert made.servers[0].verifiers[0].row_ms == {1: 10.0, 8: 14.0}
    (drafter,) = made.servers[0].drafters or ()
    assert (drafter.drafted, drafter.accepted, drafter.acceptance_rate) == (40, 30, 0.75)
    assert (drafter.model, drafter.kind, drafter.device) == ("small-1b", "model", "cpu")
    assert "draftmesh over each of the others" in page.read_text()
    assert set(fake.keys) == {"Bearer dm-secret"}


@pytest.mark.usefixtures("somebody")
def test_what_is_shared_does_not_tell_who_or_where(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing_at_times(body: dict[str, Any]) -> Any:
        error = {"error": {"message": f"{USER} at {HOST} (192.0.2.7): cannot open {MODEL}"}}
        return web.json_response(error, status=500) if len(fake.asked) == 4 else ours(body)

    fake = a_fleet()
    fake.answer = failing_at_times
    url = background(fake)
    peer = background(Fake(llama_server, models={"data": [{"id": "C:\\Users\\carol-s\\peer.gguf"}]}))
    arguments = (url, "--compare", f"plain={peer}", "--api-key", "dm-secret", "--model", MODEL)
    assert bench(monkeypatch, *arguments, "--report", str(tmp_path / "out.html")) == 0
    for file in (tmp_path / "out.html", tmp_path / "out.json"):
        text = file.read_text()
        assert "big-Q4.gguf" in text
        assert "plain 2" in text
        assert f"127.0.0.1:{url.rstrip('/').rpartition(':')[2]} plain" not in text
        assert "peer.gguf" in text
        assert "requests failed" in text
        for secret in (HOST, USER, "carol", "dm-secret", "192.0.2", "/home", "models/", "Users", str(tmp_path)):
            assert secret not in text, (file.name, secret)


def test_the_cards_command_measures_the_same_again(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = background(a_fleet())
    assert bench(monkeypatch, url, "--seed", "77", "--report", str(tmp_path / "one.html")) == 0
    first = card.read(tmp_path / "one.json")
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *shlex.split(first.command)[1:]) == 0
    assert card.read(tmp_path / "report.json").settings == first.settings


def test_a_foreign_server_lacks_the_fleet_and_is_measured_all_the_same(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Fake(llama_server)
    assert bench(monkeypatch, background(fake), "--report", str(tmp_path / "out.html")) == 0
    (server,) = card.read(tmp_path / "out.json").servers
    assert (server.name, server.verifiers, server.drafters) == ("server", None, None)
    assert not [body for body in fake.asked if "speculative" in body]


def test_without_a_report_nothing_is_measured_without_drafts_unless_asked_for(
    background: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = a_fleet()
    url = background(fake)
    assert bench(monkeypatch, url) == 0
    assert not [body for body in fake.asked if "speculative" in body]
    assert bench(monkeypatch, url, "--plain") == 0
    assert len([body for body in fake.asked if "speculative" in body]) == 3  # two repetitions and the warm-up
    assert "over its peers" in capsys.readouterr().out


def test_a_foreign_server_cannot_be_asked_for_no_drafts(
    background: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, background(Fake(llama_server)), "--plain") == command_line.BAD_OPTION
    assert "is not draftmesh" in capsys.readouterr().err


def test_an_interrupted_run_is_reported_without_the_fleets_counts(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupting(body: dict[str, Any]) -> list[str] | None:
        if len(fake.asked) < 4:
            return ours(body)
        os.kill(os.getpid(), signal.SIGINT)
        return None

    fake = a_fleet()
    fake.answer = interrupting
    status = bench(monkeypatch, background(fake), "--report", str(tmp_path / "out.html"))
    made = card.read(tmp_path / "out.json")
    assert status == command_line.INTERRUPTED
    assert made.settings.interrupted
    assert made.servers[0].drafters is None


def test_compare_is_a_command_and_no_servers_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    card.write(CARD, files[0])
    assert run(monkeypatch, "bench", "compare", *map(str, files)) == command_line.BAD_OPTION
    assert capsys.readouterr().err == f"error: card {files[1]}: No such file or directory\n"
    card.write(CARD, files[1])
    assert run(monkeypatch, "bench", "compare", *map(str, files)) == 0
    assert "B over A" in capsys.readouterr().out
