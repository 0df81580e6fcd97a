"""Whether speculation pays is said once: `doctor`, `plan`, `status`, `up`, `setup` and the page use the same words."""

import io
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from msgspec import structs
from rich.console import Console

from services.launcher.fleet.up import remarks
from services.launcher.forecast import doctor, plan_report, setup
from services.launcher.forecast.fleet_measurements import from_cards
from services.launcher.forecast.plan_report import Outlook
from services.launcher.forecast.split import Split, TargetPlace
from services.launcher.look import status
from services.launcher.settings.up_options import DoctorOptions, ModelOptions
from shared.fleet import measured
from shared.fleet.describe import describe
from shared.law import payoff
from shared.law.payoff import Measurement, sentence
from shared.model import gguf_header, weights_read
from shared.model.llama import tiny_model
from shared.model.llama.backend_device import BackendDevice
from shared.model.llama.placement import Placement
from shared.wire.messages import Card, DrafterCounts, VerifierCard
from tests import fleet_cards

CHEAP = ((1, 10.0), (2, 10.5), (8, 14.0), (16, 18.0))
DEAR = ((1, 10.0), (2, 20.0), (8, 80.0), (16, 160.0))
DRAFTER = structs.replace(fleet_cards.DRAFTER, step_ms=1.0)
SUBJECT = DoctorOptions(models=ModelOptions(target_model="m", target_device="cpu", threads=1))
DEVICE = BackendDevice("CPU", "a processor", "cpu", 1, 1, "", 9, "cpu")
TARGET = doctor.Placed("big", Path("big.gguf"), Placement((DEVICE,)), -1, 1)


def fleet(
    row_ms: tuple[tuple[int, float], ...], accepted: int, speedup: float = 0.0, step_ms: float = 1.0
) -> tuple[VerifierCard, Sequence[Card]]:
    """A verifier on this machine, and all cards; its drafter made 600 drafts in 100 rounds."""
    counts = DrafterCounts(
        drafter=DRAFTER.id, drafted=600, accepted=accepted, rounds=100, stale=0, round_trip_ms=0.7, asked=100
    )
    verifier = structs.replace(
        fleet_cards.VERIFIER,
        host=socket.gethostname(),
        model="big",
        device="cpu",
        row_ms=row_ms,
        drafters=(counts,),
        speedup=speedup,
    )
    return verifier, [verifier, structs.replace(DRAFTER, step_ms=step_ms)]


class Silent(doctor.Examination):
    """A doctor whose own stopwatch reads `row_ms`, and that has read these cards."""

    def __init__(self, row_ms: dict[int, float], cards: Sequence[Card] = ()) -> None:
        self.console = Console(width=400, record=True, file=io.StringIO(), highlight=False)
        super().__init__(SUBJECT, self.console)
        self._cards = cards
        self.row_ms = row_ms
        self.measured = 0

    def _measure(self, placed: doctor.Placed, counts: Sequence[int]) -> Measurement:
        self.measured += 1
        return Measurement(row_ms=tuple(self.row_ms.items()))

    def _bandwidth(self, target: doctor.Placed, tokens_per_second: float) -> str:
        return f"bandwidth at {tokens_per_second:g} tokens per second"


@pytest.mark.parametrize(
    ("cards", "begins"),
    [
        (fleet(CHEAP, 400), "speculation pays here: expect "),
        (fleet(CHEAP, 400, speedup=2.4), "speculation pays here: 2.40x plain decoding in the last rounds; expect "),
        (fleet(CHEAP, 400, speedup=1.0), f"speculation does not pay here: {payoff.NO_GAIN}"),
        (fleet(CHEAP, 2), f"speculation does not pay here: {payoff.TOO_POOR} (acceptance is 0.02, "),
        (fleet(CHEAP, 400, step_ms=20.0), f"speculation does not pay here: {payoff.TOO_LATE} (one takes 2.00 of"),
        (fleet(DEAR, 400), f"speculation does not pay here: {payoff.TOO_DEAR} (8 rows cost 8.0 single steps)"),
    ],
)
def test_of_a_running_fleet_every_command_says_the_same(
    cards: tuple[VerifierCard, Sequence[Card]], begins: str
) -> None:
    verifier, every = cards
    told = sentence(measured.of_verifier(verifier, every))
    assert told.startswith(begins)
    found = describe(every)
    [plan] = plan_report.describe(from_cards(list(every), None))["drafts"]
    assert plan["verdict"] == told
    assert (told, "") in remarks([verifier], every)
    console = Console(width=400, record=True, file=io.StringIO())
    for part in status.tables(found):
        console.print(part)
    assert told in console.export_text()
    page = found.verifiers[0].payoff  # what the page shows, and scripts read
    assert (page.sentence, page.width) == (told, plan["best"]["ahead"]["width"])
    examination = Silent({1: 1.0, 8: 1.0}, every)
    examination.costs(TARGET, [])
    assert told in examination.console.export_text()
    assert not examination.measured, "it takes the running verifier's figures"


@pytest.mark.parametrize("row_ms", [CHEAP, DEAR])
def test_of_rows_alone_every_command_says_the_same(row_ms: tuple[tuple[int, float], ...]) -> None:
    told = sentence(Measurement(row_ms=row_ms))
    idle = structs.replace(fleet_cards.VERIFIER, row_ms=row_ms, drafters=())
    assert describe([idle]).verifiers[0].payoff.sentence == told
    assert (told, "") in remarks([idle])
    examination = Silent(dict(row_ms))
    examination.costs(TARGET, [])
    assert told in examination.console.export_text()
    rows = plan_report.describe(Outlook(target="big", device="cpu", row_ms=dict(row_ms), source="probe", prospects=()))
    plain = Split(place=TargetPlace(target="big", device="cpu", reason="it fits"), reason="no draft model")
    assert told in setup.choose(plain, [], rows).lines


def test_the_doctor_measures_what_no_verifier_here_serves() -> None:
    verifier, every = fleet(CHEAP, 400)
    for other in ({"host": "another"}, {"model": "small"}, {"device": "cuda:0"}, {"row_ms": ()}):
        examination = Silent(dict(DEAR), [structs.replace(verifier, **other), *every[1:]])
        examination.costs(TARGET, [])
        assert examination.measured == 1
        assert payoff.TOO_DEAR in examination.console.export_text()


def test_the_verdict_of_a_fleet_gives_the_reason_of_its_verifier() -> None:
    verifier, every = fleet(DEAR, 400, speedup=1.0)
    found = describe([structs.replace(verifier, requests=()), *every[1:]])
    assert found.verdict == f"Not faster than plain decoding: {found.verifiers[0].payoff.reason}."


def test_the_doctor_tells_what_share_of_the_bandwidth_a_decode_on_the_cpu_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tmp_path / "tiny.gguf"
    assert tiny_model.write(tiny, GGMLQuantizationType.F32)
    weights = weights_read.per_token([gguf_header.read(tiny)])
    monkeypatch.setattr(doctor, "read_bandwidth", lambda threads: weights * 20.0 * threads)
    examination = doctor.Examination(SUBJECT, Console(file=io.StringIO()))
    on_cpu = doctor.Placed("tiny", tiny, Placement((DEVICE,)), -1, 2)
    assert "GB/s, 25% of the " in examination._bandwidth(on_cpu, 10.0)
    card = BackendDevice("CUDA0", "a card", "cuda", 1, 1, "", 9, "cuda:0")
    on_card = doctor.Placed("tiny", tiny, Placement((card,)), -1, 1)
    assert examination._bandwidth(on_card, 10.0) == "share of the memory bandwidth: not measured for a GPU"
