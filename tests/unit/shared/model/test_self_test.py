"""What a self-test's child says becomes a verdict, which is kept and decides how models are loaded."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared.errors import StartError
from shared.model.llama import start_check, tiny_model, weights
from shared.model.llama.backend_device import BackendDevice
from shared.model.llama.fitness import Fitness
from shared.model.llama.self_test import FAILED, SelfTestOutcome, State, judge, run
from shared.model.llama.verdicts import SelfTestVerdict, Verdicts
from shared.model.rows import LlamaError

Q4_0, Q6_K = 2, 14
STEPS = "its start\nloading q4_0 weights\n2 rows of q4_0 weights, strict settings\n"
PASSED = SelfTestOutcome(State.PASSED)
CRASHED = SelfTestOutcome(State.FAILED, "illegal instruction at 2 rows")
CARD = BackendDevice(
    handle=1,
    name="CUDA0",
    description="a card",
    kind="gpu",
    memory_free=1 << 30,
    memory_total=1 << 30,
    label="cuda:0",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "self-test"


def ignore(line: str) -> None:
    """Nobody listens."""


class Attempts:
    """Self-tests with these outcomes, by device and whether extra buffers are used; counts those that were made."""

    def __init__(self, outcomes: dict[tuple[str, bool], SelfTestOutcome]) -> None:
        self._outcomes = outcomes
        self.made: list[tuple[list[int], str, bool]] = []

    def __call__(self, kinds: Sequence[int], device: str, extra_buffers: bool) -> SelfTestOutcome:
        self.made.append((list(kinds), device, extra_buffers))
        return self._outcomes[device, extra_buffers]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    assert tiny_model.write(path, Q4_0)
    return path


@pytest.mark.parametrize(
    ("status", "said", "errors", "expected"),
    [
        (0, STEPS, "", PASSED),
        (
            -signal.SIGILL,
            STEPS,
            "",
            SelfTestOutcome(State.FAILED, "illegal instruction at 2 rows of q4_0 weights, strict settings"),
        ),
        (-signal.SIGABRT, "", "GGML_ASSERT", SelfTestOutcome(State.FAILED, "aborted itself at its start")),
        (
            FAILED,
            STEPS + "wrong numbers with q4_0 weights",
            "",
            SelfTestOutcome(State.FAILED, "wrong numbers with q4_0 weights"),
        ),
        (
            -signal.SIGKILL,
            STEPS,
            "",
            SelfTestOutcome(State.UNKNOWN, "killed at 2 rows of q4_0 weights, strict settings"),
        ),
        (1, STEPS, "Traceback\nOSError: no space\n", SelfTestOutcome(State.UNKNOWN, "OSError: no space")),
    ],
)
def test_how_a_child_ended_in_words(status: int, said: str, errors: str, expected: SelfTestOutcome) -> None:
    assert judge(status, said, errors) == expected


def test_a_child_that_does_not_end_says_nothing_about_llama() -> None:
    def hang(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 300)

    assert run([Q4_0], start=hang) == SelfTestOutcome(State.UNKNOWN, "no end after 300 s")


def test_a_model_that_passes_keeps_its_fast_kernels_and_is_tested_once(model: Path) -> None:
    attempts, said = Attempts({("", True): PASSED}), list[str]()
    assert [Fitness(said.append, said.append, attempts).extra_buffers(model) for _ in range(2)] == [True, True]
    assert attempts.made == [([0, Q4_0], "", True)]
    assert said == ["testing llama.cpp on cpu with weights of this kind, once: a few seconds"]


def test_a_crash_leaves_the_fast_kernels_out_and_every_start_says_so(model: Path) -> None:
    attempts, said = Attempts({("", True): CRASHED, ("", False): PASSED}), list[str]()
    assert [Fitness(said.append, said.append, attempts).extra_buffers(model) for _ in range(2)] == [False, False]
    assert [made[1:] for made in attempts.made] == [("", True), ("", False)]
    note = said[1]
    assert note.startswith(
        "llama.cpp failed its self-test on this processor (illegal instruction at 2 rows), so it runs"
    )
    assert said[2:] == [note]


def test_a_crash_without_them_too_is_an_error_and_is_tried_again_next_time(model: Path) -> None:
    attempts = Attempts({("", True): CRASHED, ("", False): CRASHED})
    for _ in range(2):
        with pytest.raises(LlamaError, match="does not work on this processor"):
            Fitness(ignore, ignore, attempts).extra_buffers(model)
    assert len(attempts.made) == 4


def test_a_test_that_could_not_be_made_changes_nothing_and_is_made_next_time(model: Path) -> None:
    attempts = Attempts({("", True): SelfTestOutcome(State.UNKNOWN, "no space")})
    assert [Fitness(ignore, ignore, attempts).extra_buffers(model) for _ in range(2)] == [True, True]
    assert len(attempts.made) == 2


def test_a_device_is_tested_beside_the_processor(model: Path) -> None:
    attempts = Attempts({("cuda:0", True): PASSED, ("", True): PASSED})
    assert [Fitness(ignore, ignore, attempts).extra_buffers(model, [CARD]) for _ in range(2)] == [True, True]
    assert [made[1:] for made in attempts.made] == [("cuda:0", True), ("", True)]


def test_a_device_that_fails_is_named(model: Path) -> None:
    attempts = Attempts({("cuda:0", True): CRASHED})
    with pytest.raises(
        LlamaError, match=r"failed its self-test on a card \(illegal instruction at 2 rows\); use another"
    ):
        Fitness(ignore, ignore, attempts).extra_buffers(model, [CARD])


def test_each_kind_of_weights_is_tested(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    assert tiny_model.write(other, Q6_K)
    attempts = Attempts({("", True): PASSED})
    for path in (model, other):
        Fitness(ignore, ignore, attempts).extra_buffers(path)
    assert [made[0] for made in attempts.made] == [[0, Q4_0], [0, Q6_K]]


def test_all_shards_of_a_model_count(tmp_path: Path) -> None:
    shards = [tmp_path / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for path, kind in zip(shards, (Q4_0, Q6_K), strict=True):
        assert tiny_model.write(path, kind)
    assert weights.kinds(shards[0]) == [0, Q4_0, Q6_K]


def test_a_file_that_is_no_model_has_no_kinds_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>")
    assert weights.kinds(path) == []


def test_verdicts_are_forgotten_when_a_library_changes(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libllama.so"
    library.parent.mkdir()
    library.write_bytes(b"one")
    before = Verdicts([library.parent])
    with before.one_at_a_time():
        before.keep("cpu", SelfTestVerdict(False, "slow"))
    assert Verdicts([library.parent]).find("cpu") == SelfTestVerdict(False, "slow")
    library.write_bytes(b"other")
    assert Verdicts([library.parent]).find("cpu") is None


def test_a_damaged_file_of_verdicts_counts_as_none(tmp_path: Path, own_cache: Path) -> None:
    verdicts = Verdicts([tmp_path / "none"])
    with verdicts.one_at_a_time():
        verdicts.keep("cpu", SelfTestVerdict())
    [kept] = own_cache.glob("*.json")
    for text in ("{", "[]", '{"cpu": {}}', '{"cpu": 1}'):
        kept.write_text(text)
        assert verdicts.find("cpu") is None


def test_a_folder_that_cannot_be_written_costs_only_the_next_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "file"))
    verdicts = Verdicts([tmp_path])
    with verdicts.one_at_a_time():
        verdicts.keep("cpu", SelfTestVerdict())
    assert verdicts.find("cpu") is None


def test_a_library_that_starts_is_asked_once(tmp_path: Path) -> None:
    outcomes = iter([PASSED])
    for _ in range(2):
        start_check.hold(tmp_path / "lib", lambda: next(outcomes))


def test_a_library_that_does_not_start_is_refused_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(StartError, match=r"does not start on this processor \(illegal instruction at 2 rows\)"):
            start_check.hold(tmp_path / "lib", lambda: CRASHED)
