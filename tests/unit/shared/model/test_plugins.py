"""Backends loaded at run time: their devices, and those that are broken, crash or were made for another ggml."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.machine.devices import named
from shared.model import hardware
from shared.model.llama import library, loading, manifest, plugins, trial
from shared.model.rows import LlamaError
from tests.stub import building

pytestmark = pytest.mark.slow  # a compiler and some forty processes

_MAPPED = """
import json, re
from pathlib import Path
from shared.model.llama.backend_device import list_all
seen = [device.name for device in list_all().devices]
maps = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
print(json.dumps([seen, sorted(path for path in maps if re.search("libggml-(base|stub)", path))]))
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good backend."""
    return building.build(tmp_path_factory.mktemp("good") / building.NAME).parent


@pytest.fixture
def added(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The good backend as it is after `draftmesh backend add`: its library. Nothing else is added."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "cache"))
    folder = plugins.folder() / building.NAME
    shutil.copytree(good, folder)
    manifest.describe(folder, "1.0")
    plugins.load.cache_clear()
    yield folder / plugins.library_name(building.NAME)
    plugins.load.cache_clear()


def test_its_devices_are_listed_like_any_other(added: Path) -> None:
    seen = named(hardware.look().devices)
    assert list(seen) == ["cpu", "stub:0"]
    assert (seen["stub:0"].description, seen["stub:0"].memory_free) == ("a device that computes nothing", 3 * 10**9)


def test_it_uses_the_ggml_that_libllama_uses(added: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _MAPPED], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    seen, mapped = json.loads(done.stdout)
    assert seen == ["CPU", "Stub0"]
    assert mapped == sorted([str(added), str(library.path_of("ggml_backend_dev_name").resolve())])


def test_several_installations_share_a_folder_that_none_may_write(added: Path) -> None:
    before = sorted(added.parent.iterdir())
    assert not trial.attempt(added).problem
    assert sorted(added.parent.iterdir()) == before


def test_a_good_one_tells_its_devices_and_the_release_it_was_made_for(added: Path) -> None:
    outcome = trial.attempt(added)
    assert (outcome.problem, outcome.devices) == ("", (trial.Seen("Stub0", "a device that computes nothing"),))
    assert outcome.made_for.count(".") == 2


def test_a_damaged_file_is_told(added: Path) -> None:
    damage(added)
    assert trial.attempt(added).problem == "is damaged: its libggml-stub.so is not what was fetched"


def test_a_missing_file_is_told(added: Path) -> None:
    (added.parent / loading.BASE).unlink()
    assert trial.attempt(added).problem == "is damaged: its libggml-base.so is not what was fetched"


def test_a_file_that_is_no_library_is_told(added: Path) -> None:
    added.write_bytes(b"GGUF")
    (added.parent / "backend.json").unlink()
    assert "file too short" in trial.attempt(added).problem


def test_one_of_another_release_is_refused_with_the_figure_that_differs(tmp_path: Path) -> None:
    made = building.build(tmp_path / building.NAME, other_release=True)
    outcome = trial.attempt(made)
    ours = trial.attempt(building.build(tmp_path / "good" / building.NAME)).made_for
    assert outcome.problem.startswith(
        f"was made for ggml 0.20.0, not for the {ours} of this llama.cpp: it has 2 operations, and this llama.cpp has "
    )


def test_one_with_another_interface_is_refused_with_both_versions(tmp_path: Path) -> None:
    own = loading.own_interface()
    made = building.build(tmp_path / building.NAME, interface=own + 1)
    assert trial.attempt(made).problem == (
        f"was made for version {own + 1} of ggml's backend interface, and this llama.cpp has version {own}"
    )


def test_one_that_crashes_takes_its_own_process_along(tmp_path: Path) -> None:
    made = building.build(tmp_path / building.NAME, crash=True)
    assert trial.attempt(made).problem == (
        "cannot be used: loading it ends the process with SIGABRT, so it is broken or made for another llama.cpp or"
        " processor"
    )


def test_a_library_that_is_no_backend_is_refused(tmp_path: Path, good: Path) -> None:
    made = tmp_path / building.NAME / plugins.library_name(building.NAME)
    made.parent.mkdir()
    shutil.copyfile(good / loading.BASE, made)
    assert trial.attempt(made).problem == "is no backend of ggml: it has no ggml_backend_init"


def test_a_backend_whose_driver_is_not_here_is_told_apart(
    tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loading._DRIVERS, "lonely", ("libabsent.so.9", "the driver of absent cards"))
    with pytest.raises(loading.NoDriver, match=r"^needs libabsent.so.9, .*: install the driver of absent cards$"):
        loading.check_driver("lonely")


def test_a_broken_one_costs_no_other_device(added: Path) -> None:
    damage(added)
    seen = hardware.look()
    assert list(named(seen.devices)) == ["cpu"]
    assert seen.broken == {
        building.NAME: "the backend stub is damaged: its libggml-stub.so is not what was fetched; `draftmesh backend"
        " add stub` fetches the one for this release, `draftmesh backend remove stub` removes it"
    }


def test_what_did_well_is_not_tried_again_until_a_file_changes(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def attempt(path: Path) -> trial.TrialOutcome:
        tried.append(path)
        return trial.TrialOutcome(problem="is bad" if len(tried) == 2 else "")

    monkeypatch.setattr(trial, "attempt", attempt)
    monkeypatch.setattr(loading, "load", lambda path: 0)
    for _ in range(2):
        plugins.load(building.NAME)
        plugins.load.cache_clear()
    assert tried == [added]
    damage(added)
    with pytest.raises(LlamaError, match=r"^the backend stub is bad; `draftmesh backend add stub`"):
        plugins.load(building.NAME)
    assert tried == [added, added]


def damage(path: Path) -> None:
    """Cut the file off, as a disk that was full did."""
    os.truncate(path, path.stat().st_size // 2)
