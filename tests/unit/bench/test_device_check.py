"""The check of a device: its time, its report whatever fails, and a kit that is what it says it is."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.device import answers, check, child, kit, manifest, models, random_model, schedule
from bench.device.models import SMALL, TINY
from bench.device.schedule import Figures, Part, PartFailed, Result, Status
from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy
from services.launcher.models.pair import default_model
from shared.model.llama.model import Model


class Clock:
    """Time that passes only when a part takes some."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def parts(*limits: float) -> list[Part]:
    return [Part(name=f"part {index}", title="", limit_s=limit) for index, limit in enumerate(limits)]


def run(given: list[Part], total_s: float, attempt: Callable[[Part, Figures, float, Clock], None]) -> list[Result]:
    clock = Clock()

    def attempted(part: Part, figures: Figures, seconds: float) -> dict[str, Any]:
        attempt(part, figures, seconds, clock)
        return {"seconds": seconds}

    return list(schedule.run(given, attempted, total_s, clock))


def test_each_part_gets_its_limit_or_what_is_left() -> None:
    def whole_limit(part: Part, figures: Figures, seconds: float, clock: Clock) -> None:
        clock.now += seconds

    results = run(parts(30, 60, 60, 60), 100, whole_limit)
    assert [result.figures.get("seconds") for result in results] == [30, 60, 10, None]
    assert [result.seconds for result in results] == [30, 60, 10, 0]
    assert results[-1].status is Status.SKIPPED
    assert results[-1].reason == "no time was left of 100 s"


def test_time_that_a_part_leaves_is_for_the_later_ones() -> None:
    def one_second(part: Part, figures: Figures, seconds: float, clock: Clock) -> None:
        clock.now += 1

    assert [result.figures["seconds"] for result in run(parts(60, 60, 60), 100, one_second)] == [60, 60, 60]


def test_a_part_that_fails_leaves_its_sentence_and_the_others_go_on() -> None:
    def second_fails(part: Part, figures: Figures, seconds: float, clock: Clock) -> None:
        if part.name == "b":
            raise PartFailed("it broke", ["the last line"])

    given = [
        Part(name="a", title="", limit_s=9),
        Part(name="b", title="", limit_s=9),
        Part(name="c", title="", limit_s=9, needs=("a", "b")),
        Part(name="d", title="", limit_s=9, needs=("a",)),
    ]
    a, b, c, d = run(given, 100, second_fails)
    assert (a.status, b.status, c.status, d.status) == (Status.OK, Status.FAILED, Status.SKIPPED, Status.OK)
    assert (b.reason, b.log) == ("it broke", ("the last line",))
    assert c.reason == "needs b, which did not end well"


def test_later_parts_are_told_the_figures_of_those_that_went_well() -> None:
    seen: list[list[str]] = []
    run(parts(9, 9, 9), 100, lambda part, figures, seconds, clock: seen.append(list(figures)))
    assert seen == [[], ["part 0"], ["part 0", "part 1"]]


def test_an_interrupt_leaves_the_results_so_far() -> None:
    def interrupted(part: Part, figures: Figures, seconds: float) -> dict[str, Any]:
        if part.name == "part 1":
            raise KeyboardInterrupt
        return {}

    results = schedule.run(parts(9, 9, 9), interrupted, 100, Clock())
    assert next(results).name == "part 0"
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_the_parts_of_a_check_need_only_earlier_ones_and_fit_into_eight_minutes() -> None:
    names = [part.name for part in check.PARTS]
    for part in check.PARTS:
        assert set(part.needs) <= set(names[: names.index(part.name)])
    assert check.BUDGET_S < 480


def attempt(code: str, seconds: float = 60.0) -> dict[str, Any]:
    part = Part(name="part", title="", limit_s=seconds)
    return child.attempt(part, {}, seconds, {}, os.environ, (sys.executable, "-S", "-c", code))


def test_a_child_is_told_everything_and_its_answer_is_taken() -> None:
    answer = "{'told': [*json.load(sys.stdin)], 'name': sys.argv[1]}"
    code = f"import json, sys; open(sys.argv[2], 'w').write(json.dumps({answer}))"
    assert attempt(code) == {"told": ["wishes", "figures", "seconds"], "name": "part"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('error: no such card'); print('more'); raise SystemExit(1)", "no such card"),
        ("print('last words'); raise SystemExit(3)", "last words"),
        ("raise SystemExit(3)", "it ended with status 3 and said nothing"),
        ("pass", "it ended without an answer"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "signal 4 \\(Illegal instruction\\)"),
    ],
)
def test_a_child_that_does_not_answer_is_a_sentence(code: str, reason: str) -> None:
    with pytest.raises(PartFailed, match=reason):
        attempt(code)


def test_a_child_that_hangs_is_ended() -> None:
    with pytest.raises(PartFailed, match="did not end within 0 s"):
        attempt("import time; time.sleep(600)", 0.0)


def made_kit(folder: Path) -> Path:
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels/one.whl").write_bytes(b"one")
    (folder / "vocabulary.gguf").write_bytes(b"words")
    manifest.write(folder, python="3.12", machine="x86_64", left_out=["numpy"])
    return folder


def test_a_kit_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = manifest.read(made_kit(tmp_path / "kit"))
    assert (found.python, found.machine, found.left_out) == ("3.12", "x86_64", ("numpy",))
    assert found.under("wheels") == ["wheels/one.whl"]
    assert set(found.files) == {"wheels/one.whl", "vocabulary.gguf"}


def changed(folder: Path) -> None:
    (folder / "wheels/one.whl").write_bytes(b"two")


def missing(folder: Path) -> None:
    (folder / "vocabulary.gguf").unlink()


def other(folder: Path) -> None:
    (folder / manifest.NAME).write_text(json.dumps({"schema": 99}))


def broken(folder: Path) -> None:
    (folder / manifest.NAME).write_text("{")


def absent(folder: Path) -> None:
    (folder / manifest.NAME).unlink()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (changed, "one.whl is not the file that was put there"),
        (missing, "vocabulary.gguf is missing"),
        (other, "is of another release of draftmesh"),
        (broken, "cannot be read"),
        (absent, "there is no kit at"),
    ],
)
def test_a_spoilt_kit_is_refused_with_what_helps(tmp_path: Path, spoil: Callable[[Path], None], sentence: str) -> None:
    spoil(made_kit(tmp_path / "kit"))
    with pytest.raises(PartFailed, match=f"{sentence}.*make device-kit"):
        manifest.read(tmp_path / "kit")


def test_a_check_with_a_spoilt_kit_begins_nothing_and_says_so_in_its_report(tmp_path: Path) -> None:
    changed(made_kit(tmp_path / "kit"))
    report = tmp_path / "report.json"
    assert check.main(["--kit", str(tmp_path / "kit"), "--report", str(report)]) == 1
    found = json.loads(report.read_text())
    assert not found["passed"]
    assert [part["status"] for part in found["parts"]] == ["failed"] + ["skipped"] * len(check.PARTS)
    assert "is not the file that was put there" in found["parts"][0]["reason"]
    assert found["machine"]["cores"] > 0


def test_a_report_that_cannot_be_written_is_said_before_anything_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(["--report", str(tmp_path / "absent/report.json")]) == 2
    assert "--report" in capsys.readouterr().err


def test_help_describes_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        check.main(["--help"])
    said = capsys.readouterr().out
    assert all(part.name in said for part in check.PARTS)
    assert "--device" in said


def test_a_kit_wants_what_the_product_and_llama_need() -> None:
    project = '[project]\ndependencies = ["numpy>=2", "llama-cpp-python==0.3.36", "redis[hiredis]>=8"]\n'
    needs = ["diskcache>=5.6", 'uvicorn>=0.2; extra == "server"']
    assert kit.requirements(project, needs) == ["numpy>=2", "redis[hiredis]>=8", "diskcache>=5.6"]


@pytest.mark.parametrize(("tiny_ms", "shape"), [(0.4, SMALL), (3.0, SMALL), (60.0, TINY)])
def test_a_slow_device_gets_tiny_models(tiny_ms: float, shape: random_model.Shape) -> None:
    assert models.shape_for(tiny_ms) is shape


@pytest.mark.parametrize(
    ("first_ms", "free", "factor"),
    [
        (2.0, 100 << 30, 87),  # 300 MB took 2 ms, so 20 ms take 3 GB, and one more adds 34 MB
        (0.02, 100 << 30, 757),  # no more than 24 GiB
        (2.0, 1 << 30, 18),  # no more than 0.6 of 1 GiB
        (2.0, 1 << 20, 1),
    ],
)
def test_the_target_is_as_large_as_its_decodes_and_memory_allow(first_ms: float, free: int, factor: int) -> None:
    assert models.factor_for(first_ms, 300_000_000, free, 34_000_000) == factor


@pytest.mark.parametrize(("decode_ms", "tokens"), [(1.0, 128), (100.0, 50), (5000.0, 16)])
def test_answers_are_as_long_as_there_is_time_for(decode_ms: float, tokens: int) -> None:
    assert answers.tokens(decode_ms) == tokens


def test_a_random_model_speaks_the_first_tokens_of_a_real_vocabulary(tmp_path: Path) -> None:
    random_model.keep_vocabulary(default_model(), tmp_path / "vocabulary.gguf")
    random_model.write(tmp_path / "tiny.gguf", tmp_path / "vocabulary.gguf", TINY)
    gguf_copy.write(tmp_path / "tiny.gguf", [GgufCopy(path=tmp_path / "wide.gguf", quant="Q8_0", factor=3)])
    whole, tiny = (Model(path, vocab_only=True) for path in (default_model(), tmp_path / "tiny.gguf"))
    text = "The harbour master kept two books. def total(items):"
    tokens = tiny.vocabulary.tokenize(text)
    assert tiny.vocabulary.n_tokens == TINY.tokens
    assert tiny.vocabulary.texts() == whole.vocabulary.texts()[: TINY.tokens]
    assert b"".join(map(tiny.vocabulary.piece, tokens)) == text.encode()
    assert tiny.vocabulary.chat_template() == whole.vocabulary.chat_template()
    for model in (whole, tiny, Model(tmp_path / "wide.gguf")):
        model.close()
