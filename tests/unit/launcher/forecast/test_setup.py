"""`draftmesh setup`: what it concludes from measurements, and that the file it writes says to `up` what was decided."""

import json
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.launcher.forecast import plan_report, setup
from services.launcher.forecast.forecast import Agreement
from services.launcher.forecast.plan_report import Outlook, Prospect
from services.launcher.forecast.setup_file import render
from services.launcher.forecast.split import Spare, Split, TargetPlace
from services.launcher.settings.setup_options import SetupOptions
from shared.law.payoff import LOCAL_MS, WORTH, Measurement
from shared.machine.devices import Device
from shared.model import hardware, model_source
from shared.model.hardware import Hardware
from shared.settings import settings_file
from shared.wire.messages import Card, GatewayCard
from tests.command_lines import forget_settings, launch
from tests.toys import drafter_card

OPTIONS = SetupOptions(output=Path("unused"), probe=False)
CHEAP_ROWS = {1: 100.0, 2: 102.0, 16: 130.0}
DEAR_ROWS = {1: 10.0, 2: 20.0, 16: 160.0}
PLACE = TargetPlace(target="big", device="cuda:0", reason="it fits", taken=("cuda:0",))
PLAIN = Split(place=PLACE, reason="no draft model")
ONE, OTHER = (Split(place=PLACE, drafts=((name, "cpu"),), reason="free") for name in ("one", "other"))


def measured(row_ms: dict[int, float], *drafts: tuple[str, float, int]) -> dict[str, Any]:
    """What a probe of two temperatures found: name, step in ms, agreement of 1000 draws."""
    prospects = [
        Prospect(
            draft=name,
            device="cpu",
            temperature=warm,
            agreement=Agreement(1000, hits, hits, hits),
            measurement=Measurement(
                row_ms=tuple(row_ms.items()), alpha=hits / 1000, draft_ms=step, round_trip_ms=LOCAL_MS
            ),
        )
        for name, step, hits in drafts
        for warm in (0.0, 1.0)
    ]
    return plan_report.describe(
        Outlook(target="big", device="cuda:0", row_ms=row_ms, source="probe", prospects=prospects)
    )


def test_the_drafter_that_measures_best_is_proposed() -> None:
    found = measured(CHEAP_ROWS, ("one", 10.0, 500), ("other", 10.0, 800))
    choice = setup.choose(PLAIN, [ONE, OTHER], found)
    assert choice.split == OTHER
    assert choice.speedup is not None
    assert choice.speedup == found["drafts"][2]["best"]["ahead"]["speedup"]
    assert choice.lines[0] == "10.0 tokens a second without drafts"
    assert choice.lines[-1] == f"so about {10 * choice.speedup:.1f} tokens a second"
    assert [line.partition(":")[0] for line in choice.lines[1:-1]] == [
        "one on cpu, temperature 0",
        "one on cpu, temperature 1",
        "other on cpu, temperature 0",
        "other on cpu, temperature 1",
    ]


def test_where_drafts_do_not_pay_none_are_proposed_and_it_says_so() -> None:
    choice = setup.choose(PLAIN, [ONE], measured(DEAR_ROWS, ("one", 5.0, 600)))
    assert (choice.split, choice.speedup) == (PLAIN, 1.0)
    assert choice.lines[-1] == "so no draft model is proposed: it would not pay"


def test_a_drafter_beside_the_target_must_promise_more() -> None:
    found = measured(CHEAP_ROWS, ("one", 40.0, 400))
    assert setup.choose(PLAIN, [ONE], found).speedup == pytest.approx(1.12, abs=0.01)
    beside = Split(place=PLACE, drafts=ONE.drafts, shared=True, reason="shared")
    assert setup.choose(PLAIN, [beside], found).split == PLAIN
    choice = setup.choose(PLAIN, [beside], measured(CHEAP_ROWS, ("one", 5.0, 900)))
    assert choice.split == beside
    assert "slow each other" in choice.lines[-1]


def test_without_drafters_the_cost_of_rows_is_judged() -> None:
    choice = setup.choose(PLAIN, [], measured(CHEAP_ROWS))
    assert choice.split == PLAIN
    assert choice.lines[1].startswith("speculation pays here: expect up to ")


def test_what_a_fleet_measured_of_other_machines_counts() -> None:
    joined = Split(place=PLACE, reason="machines that joined draft")
    choice = setup.choose(joined, [], measured(CHEAP_ROWS), measured(CHEAP_ROWS, ("far", 10.0, 800))["drafts"][:1])
    assert choice.split == joined
    assert choice.speedup is not None
    assert choice.speedup > WORTH
    assert choice.lines[1].startswith("far elsewhere: ")


def test_spares_are_model_drafters_of_other_machines() -> None:
    card = drafter_card("a", model="tiny")
    cards: list[Card] = [
        card,
        drafter_card("b", kind="lookup"),
        GatewayCard(id="g", host="h", pid=1, url="", streams=0),
    ]
    assert setup.spares(cards, card.fingerprint, card.n_vocab, "here") == [Spare("h", "tiny", "cpu")]
    assert setup.spares(cards, card.fingerprint, card.n_vocab, "h") == []
    assert setup.spares(cards, "another", card.n_vocab, "here") == []
    assert setup.spares(cards, "another", card.n_vocab + 1, "here") == [Spare("h", "tiny", "cpu")]


ODD = st.text(max_size=30)
LAYERS = st.sampled_from(["auto", "0", "99"])


@given(ODD, ODD, st.lists(st.tuples(ODD, ODD), max_size=3), st.lists(ODD, max_size=3), ODD, LAYERS)
def test_the_file_says_what_was_decided_whatever_the_names(
    target: str, device: str, drafts: list[tuple[str, str]], lines: Sequence[str], redis: str, layers: str
) -> None:
    place = TargetPlace(target=target, device=device, gpu_layers=layers, reason="x\ny")
    content = tomllib.loads(render(Split(place=place, drafts=tuple(drafts), reason="z"), lines, redis, lines))
    expected: dict[str, Any] = {"target_model": target, "target_device": device}
    if drafts:
        expected |= {"draft_model": [model for model, _ in drafts], "draft_device": [where for _, where in drafts]}
    if redis:
        expected["redis"] = redis
    if layers != "auto":
        whole = {"gpu_layers": "auto"}
        expected |= {"gpu_layers": int(layers), "drafter": whole, "join": whole}
    assert content == expected


# ---------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory on a machine with two GPUs, of which the tests know the drivers only by name."""
    forget_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cards = [Device(f"CUDA{index}", "a card", "gpu", size * 10**9, size * 10**9) for index, size in ((0, 8), (1, 24))]
    seen = (*cards, Device("CPU", "a CPU", "cpu", 16 * 10**9, 16 * 10**9))
    monkeypatch.setattr(hardware, "look", lambda: Hardware(seen))
    return tmp_path


def test_up_reads_what_setup_wrote(folder: Path, model_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, errors = launch(capfd, "setup", "--no-probe", "--draft-model", str(model_path))
    assert (code, output) == (0, ""), errors
    assert "drafts on cuda:0 (a card), which is free" in errors
    file = folder / settings_file.NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert launch(capfd, "config", "check") == (0, f"{file}\nevery key and value is allowed\n", "")
    _, output, _ = launch(capfd, "config", "show", "up", "--json")
    settings = {row["key"]: row["value"] for row in json.loads(output)["commands"]["up"]}
    assert [settings[key] for key in ("target_model", "target_device", "draft_model", "draft_device")] == [
        *([model_source.DEFAULT], ["cuda:1"]),
        *([str(model_path)], ["cuda:0"]),
    ]


def test_the_largest_model_that_fits_is_the_target_and_lies_where_the_file_says(
    folder: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "models").mkdir()
    (folder / "models/mine.gguf").symlink_to(model_path)
    code, output, errors = launch(capfd, "setup", "--no-probe", "--print", "--target-model", "models/mine.gguf")
    assert code == 0, errors
    assert tomllib.loads(output)["target_model"] == str(folder / "models/mine.gguf")
    assert not (folder / settings_file.NAME).exists()


def test_a_file_that_is_there_stays_without_force(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = folder / settings_file.NAME
    file.write_text("port = 5")
    code, _, errors = launch(capfd, "setup", "--no-probe")
    assert (code, errors.startswith("error: --output draftmesh.toml: is there already; --force replaces it")) == (
        2,
        True,
    )
    assert file.read_text() == "port = 5"
    assert launch(capfd, "setup", "--no-probe", "--force")[0] == 0
    assert tomllib.loads(file.read_text())["target_device"] == "cuda:1"


def test_a_target_that_fits_nowhere_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hardware, "look", lambda: Hardware((Device("CPU", "a CPU", "cpu", 10**7, 10**7),)))
    code, _, errors = launch(capfd, "setup")
    assert code == 2
    assert errors.splitlines()[-1].startswith("error: --target-model default: fits nowhere: its weights take ")


@pytest.mark.model
def test_a_probe_measures_what_it_proposes(
    folder: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The model as its own drafter on the one CPU agrees always; what that brings is up to the machine."""
    monkeypatch.setattr(hardware, "look", lambda: Hardware((Device("CPU", "a CPU", "cpu", 10**11, 10**11),)))
    (folder / "twin.gguf").symlink_to(model_path)
    code, output, errors = launch(capfd, "setup", "--print", "--draft-model", "twin.gguf")
    assert code == 0, errors
    assert "tokens a second without drafts" in output
    assert "twin.gguf on cpu, temperature 1: " in output
    assert ("draft_model" in tomllib.loads(output)) == ("so no draft model is proposed" not in output)


@pytest.mark.parametrize("agreed", [True, False])
def test_a_person_is_asked(agreed: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def prompt(question: str, default: str, **_: Any) -> str:
        asked.append((question, default))
        return default

    def confirm(question: str, **_: Any) -> bool:
        asked.append((question, ""))
        return agreed

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("typer.confirm", confirm)
    file = folder / settings_file.NAME
    assert setup.run(replace(OPTIONS, output=file), ask=True) == (0 if agreed else 1)
    assert asked == [("Target model", model_source.DEFAULT), (f"Write {file}?", "")]
    assert file.exists() == agreed
