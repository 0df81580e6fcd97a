"""What looks at devices, models and plans on a machine with a second device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices.driver import DEVICE
from tests.devices.places import VULKAN


def ran(variables: dict[str, str], folder: Path, *words: str) -> str:
    """What a command printed. It must succeed and have nothing to complain of."""
    command = [sys.executable, "-P", "-m", "services.launcher", *words]
    own = {**variables, "XDG_STATE_HOME": str(folder), "COLUMNS": "200"}
    done = subprocess.run(command, env=own, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture
def pair(models: dict[str, Path]) -> list[str]:
    """Options of a target there and a drafter here."""
    target, draft = str(models[VULKAN.name]), str(models["draft"])
    return ["--target-model", target, "--target-device", DEVICE, "--draft-model", draft, "--draft-device", "cpu"]


def test_doctor_lists_the_device_and_measures_the_models(
    variables: dict[str, str], pair: list[str], tmp_path: Path
) -> None:
    said = ran(variables, tmp_path, "doctor", *pair)
    assert f"✓ device {DEVICE}: llvmpipe" in said
    assert "cost of rows" in said


def test_models_says_what_fits_there(variables: dict[str, str], models: dict[str, Path], tmp_path: Path) -> None:
    folder = str(models["draft"].parent)
    assert DEVICE in ran(variables, tmp_path, "models", "--folder", folder)
    assert DEVICE in json.dumps(json.loads(ran(variables, tmp_path, "models", "--folder", folder, "--json")))


def test_plan_forecasts_for_it(variables: dict[str, str], pair: list[str], tmp_path: Path) -> None:
    words = ["plan", *pair, "--tokens", "8", "--temperature", "1", "--prompt", "The harbour", "--json"]
    assert DEVICE in json.dumps(json.loads(ran(variables, tmp_path, *words)))
