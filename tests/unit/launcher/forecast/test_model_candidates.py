"""Which models `setup` considers: those that were named, or what is on this machine and could work together."""

import os
from pathlib import Path

import pytest
from rich.console import Console

from services.launcher.forecast.model_candidates import LocalModels
from shared.errors import StartError
from shared.machine.devices import Device
from tests.command_lines import forget_settings
from tests.tiny_gguf import TOKENS, write

CPU = {"cpu": Device("CPU", "a CPU", "cpu", 10**10, 10**10)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, on a machine that has the default model and no others."""
    forget_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def local_models(folder: Path) -> LocalModels:
    return LocalModels(CPU, 8, [folder], Console(stderr=True))


def test_what_shares_the_vocabulary_and_is_much_smaller_could_draft_a_tenth_of_the_size_first(folder: Path) -> None:
    target = str(write(folder / "target.gguf", layers=60))
    half = str(write(folder / "half.gguf", layers=20))
    tenth = str(write(folder / "tenth.gguf", layers=6))
    write(folder / "foreign.gguf", tokens=[b"x", *TOKENS[1:]], layers=6)
    found = local_models(folder).candidates(target, [])
    assert [draft.name for draft in found.drafts] == [tenth, half]
    assert (found.target.name, found.served, found.n_tokens) == (target, "target", len(TOKENS))
    assert found.target.fit(10**10, True).whole
    assert not found.target.fit(10**6, True).whole


def test_named_draft_models_stand_for_all_others(folder: Path, tmp_path: Path) -> None:
    target = str(write(folder / "target.gguf", layers=60))
    write(folder / "here.gguf", layers=6)
    named = str(write(tmp_path / "named.gguf", layers=4))
    assert [draft.name for draft in local_models(folder).candidates(target, [named]).drafts] == [named]


def test_a_draft_model_with_another_vocabulary_is_refused(folder: Path) -> None:
    target = str(write(folder / "target.gguf", layers=60))
    foreign = str(write(folder / "foreign.gguf", tokens=[b"x", *TOKENS[1:]]))
    with pytest.raises(StartError, match=r"--draft-model .*foreign.gguf: has another vocabulary than .*target.gguf"):
        local_models(folder).candidates(target, [foreign])


def test_a_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    file = write(folder / "broken.gguf")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StartError, match=r"--target-model .*broken.gguf: "):
        local_models(folder).candidates(str(file), [])


def test_the_largest_model_here_that_fits_is_the_target_but_never_one_that_draftmesh_made(
    folder: Path, tmp_path: Path
) -> None:
    assert local_models(folder).best() == "default"
    (tmp_path / "cache").mkdir(exist_ok=True)
    os.truncate(write(tmp_path / "cache" / "demo.gguf"), 10**9)
    large = write(folder / "large.gguf")
    os.truncate(large, 2 * 10**8)
    assert local_models(folder).best() == str(large)
