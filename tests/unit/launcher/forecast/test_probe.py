"""The probe with toys: the target's own words, and a share of agreement that is known beforehand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from services.launcher.forecast import planning, probe
from services.launcher.forecast.forecast import Agreement
from services.launcher.settings.up_options import ModelOptions
from shared.errors import StartError
from shared.law.sampling import Logits
from shared.settings import settings_file
from shared.settings.options_struct import build, values
from shared.wire.messages import Sampling
from tests.command_lines import forget_settings, launch
from tests.toys import EOG, ToyTarget, job, plain_answer

WARM, COLD = (Sampling(seed=5, temperature=temperature, logit_bias=((EOG, -100.0),)) for temperature in (1.0, 0.0))
PROMPT = [5, 6, 7]


class Swapping(ToyTarget):
    """The toy target, but at the given answer offsets its `places` best tokens but the end trade places in a ring."""

    def __init__(self, offsets: Sequence[int], places: int = 2) -> None:
        super().__init__(max_rows=16)
        self._positions = {len(PROMPT) - 1 + offset for offset in offsets}
        self._places = places

    def logits(self, row: int) -> Logits:
        logits = super().logits(row)
        if self.decodes[-1].positions[row] not in self._positions:
            return logits
        best = [token for token in np.argsort(-logits) if token != EOG][: self._places]
        swapped = logits.copy()
        swapped[best] = logits[np.roll(best, 1)]
        return swapped


@pytest.mark.parametrize("law", [WARM, COLD], ids=["warm", "cold"])
def test_the_target_says_what_it_says_plainly(law: Sampling) -> None:
    target = ToyTarget(max_rows=16)
    told: list[None] = []
    said = probe.answer(target, PROMPT, law, 20, [EOG], lambda: told.append(None))
    assert said == plain_answer(job(prompt=PROMPT, sampling=law, max_tokens=20))
    assert len(told) == 20
    assert target.cells[0] == []


def test_an_answer_ends_before_its_end_token() -> None:
    assert probe.answer(ToyTarget(), PROMPT, Sampling(seed=1, logit_bias=((EOG, 100.0),)), 20, [EOG]) == []
    assert probe.agreement(ToyTarget(), PROMPT, [], WARM, 64) == Agreement(0, 0, 0, 0)


@pytest.mark.parametrize("law", [WARM, COLD], ids=["warm", "cold"])
def test_a_model_agrees_with_itself(law: Sampling) -> None:
    said = probe.answer(ToyTarget(), PROMPT, law, 40, [EOG])
    assert probe.agreement(ToyTarget(max_rows=16), PROMPT, said, law, 64) == Agreement(40, 40, 40, 40)


@pytest.mark.parametrize(
    ("places", "found"),
    [(2, Agreement(40, 30, 40, 40)), (3, Agreement(40, 30, 30, 40)), (4, Agreement(40, 30, 30, 30))],
)
def test_a_draft_that_errs_at_known_places_has_the_known_share(places: int, found: Agreement) -> None:
    """At every fourth token the best one has become the second, third or fourth."""
    said = probe.answer(ToyTarget(), PROMPT, COLD, 40, [EOG])
    assert probe.agreement(Swapping(range(0, 40, 4), places), PROMPT, said, COLD, 64) == found


def test_ids_beyond_the_targets_vocabulary_are_never_guessed() -> None:
    said = probe.answer(ToyTarget(), PROMPT, COLD, 20, [EOG])
    narrow = probe.agreement(ToyTarget(max_rows=16), PROMPT, said, COLD, 32)
    assert narrow.first == sum(token < 32 for token in said)


# ---------------------------------------------------------------- options


def subject(**options: object) -> planning.PlanOptions:
    usual: dict[str, object] = {
        "redis": "", "target_device": "cpu", "threads": 1,
        "temperatures": (0.0, 1.0), "texts": ("A text",), "tokens": 16, "round_trip_ms": 0.5, "demo_pair": False,
    }  # fmt: skip
    return build(planning.PlanOptions, values(ModelOptions()) | usual | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--draft-model is missing: .*--demo-pair"),
        ({"draft_model": ["default"], "redis": "redis://h:1/0"}, "--draft-model and --redis: take one"),
        ({"demo_pair": True, "redis": "redis://h:1/0"}, "--demo-pair and --redis: take one"),
        ({"redis": "http://h"}, "--redis http://h: "),
        ({"draft_model": ["default"], "texts": (" ",)}, "--prompt .*: a text to continue"),
        ({"draft_model": ["a"], "draft_device": ["cpu", "cuda:7"]}, "--draft-device cuda:7: one per --draft-model"),
        ({"draft_model": ["default"], "target_device": "cuda:7"}, "--target-device cuda:7: no such device"),
        ({"draft_model": ["nothing.gguf"]}, "--draft-model nothing.gguf: no such file"),
        ({"draft_model": ["default"], "tensor_split": "x"}, "--tensor-split x: "),
    ],
)
def test_a_bad_option_is_one_line_that_names_it(options: dict[str, object], message: str) -> None:
    with pytest.raises(StartError, match=message) as caught:
        planning.run(subject(**options), as_json=False)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_model_is_an_error_of_its_option(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(StartError, match=r"--target-model .*broken.gguf"):
        planning.run(subject(target_model=str(broken), draft_model=["default"]), as_json=False)


@pytest.mark.model
def test_a_model_that_drafts_for_itself_is_always_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forget_settings(monkeypatch, tmp_path)
    options = ("--draft-model", "default", "--target-device", "cpu", "--prompt", "A text", "--tokens", "16", "--json")
    code, output, errors = launch(capfd, "plan", *options)
    assert code == 0, errors
    found = json.loads(output)
    cold, warm = found["drafts"]
    assert (cold["temperature"], cold["judged"]) == (0.0, 16)
    assert cold["alpha"] == 1.0
    assert warm["alpha"] >= 0.95
    assert found["target"]["row_cost"]["1"] == 1.0
    assert cold["step_ms"] > 0


def test_a_draft_model_that_was_written_down_gives_way_to_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forget_settings(monkeypatch, tmp_path)
    (tmp_path / settings_file.NAME).write_text('draft_model = "small.gguf"')
    assert launch(capfd, "plan", "--redis", "foo")[2].startswith("error: --redis foo: an address such as ")
    assert launch(capfd, "plan", "--redis", "foo", "--draft-model", "x")[2].startswith(
        "error: --draft-model and --redis: "
    )
