"""Whoever waits for a fleet is told what it does meanwhile."""

import json

import pytest
from structlog.testing import capture_logs

from services.launcher.fleet.starting import phase
from services.verifier.load import _Progress

LOADING = json.dumps({"event": "model_loading", "percent": 40, "service": "verifier"})
MEASURING = json.dumps({"event": "calibration_progress", "of": "the cost of rows", "percent": 20})


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        (["no JSON", "[1]", '{"event": 3}', '{"event": "model_loading", "percent": "x"}'], ""),
        ([LOADING], "loading the model, 40 %"),
        ([LOADING, MEASURING], "measuring the cost of rows, once for this model and device, 20 %"),
        (
            [MEASURING, '{"event": "verifier_ready"}'],
            "measuring the cost of rows, once for this model and device, 20 %",
        ),
        (
            [MEASURING, '{"event": "calibration_noisy"}'],
            "this machine is busy: what rows cost is measured again once it is not",
        ),
        (['{"event": "model_placed", "placed": "20 of 33 layers on cuda:0"}'], "20 of 33 layers on cuda:0"),
        (['{"event": "model_search", "progress": "big.gguf: 3 of 40 GB"}'], "big.gguf: 3 of 40 GB"),
    ],
)
def test_the_last_line_that_tells_of_a_start_counts(lines: list[str], told: str) -> None:
    assert phase(lines) == told


def test_a_model_that_loads_quickly_says_nothing_and_a_slow_one_not_all_the_time() -> None:
    now = 0.0
    progress = _Progress("model_loading", lambda: now)
    with capture_logs() as logs:
        for step in range(101):
            progress(step / 100)
    assert not logs
    with capture_logs() as logs:
        for step in range(101):
            now += 0.125  # exactly representable
            progress(step / 100)
    assert [line["percent"] for line in logs] == [15, 31, 47, 63, 79, 95]
