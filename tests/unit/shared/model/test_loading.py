"""A verifier and a drafter look at what fits before they load anything, and say what they decided."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

import services.drafter.load
import services.verifier.load
from services.drafter.load import ModelDrafter
from services.verifier.load import LoadedTarget, load
from shared.errors import StartError
from shared.fleet.arriving import alone
from shared.model import memory, model_source
from shared.model.llama.backend_device import open_device
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement, place_target
from shared.model.memory import RESERVE, Layout
from shared.model.rows import LlamaError
from shared.settings import options
from shared.settings.drafter_options import DraftOptions
from shared.settings.verifier_options import TargetOptions, VerifierOptions
from tests import random_models, tiny_gguf

MB = 10**6


@pytest.fixture
def gemma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTMESH_CACHE", str(tmp_path))
    return random_models.gemma3(tmp_path / "gemma.gguf")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Placement]:
    """Say how much memory the CPU has left, and no more than that has any device; the CPU as a place."""

    def say(amount: int) -> Placement:
        for module in (services.verifier.load, services.drafter.load):
            monkeypatch.setattr(module.resources, "available_memory", lambda: amount)
        return Placement((dataclasses.replace(open_device("cpu", "--target-device"), memory_free=amount),))

    return say


def settings(path: Path, **more: Any) -> VerifierOptions:
    target = TargetOptions(**{"ctx": 4096, "parallel": 2, "threads": 1, **more})
    return VerifierOptions(target_model=str(path), target=target)


def drafter(path: Path, place: Placement) -> ModelDrafter:
    return ModelDrafter(DraftOptions(draft_model=str(path), ctx=4096, parallel=2), path, place, alone(1))


def whole(path: Path) -> int:
    """What it takes to keep all, in either service here."""
    layout = Layout(context=4096, parallel=2, outputs=72)
    sizes = model_source.sizes(path, "", "")
    return memory.need(sizes, layout, memory.number_of_layers(sizes), on_cpu=True).total


def loaded(path: Path, place: Placement, **more: Any) -> LoadedTarget:
    found = load(settings(path, **more), place)
    found.context.close()
    found.model.close()
    return found


@pytest.mark.parametrize("service", ["verifier", "drafter"])
def test_what_does_not_fit_is_refused_before_it_is_loaded(
    service: str, gemma: Path, free: Callable[[int], Placement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Linux a process that takes more than there is is killed, and says nothing."""
    monkeypatch.setattr(Model, "__init__", lambda *_, **__: pytest.fail("it is loaded"))
    place = free(2 * MB)
    starts: dict[str, Callable[[], object]] = {
        "verifier": lambda: load(settings(gemma), place),
        "drafter": lambda: drafter(gemma, place),
    }
    with pytest.raises(StartError, match=r"it needs \d+ MB of memory \(1 MB of weights, .*and 2 MB are free; use"):
        starts[service]()


def test_all_is_kept_where_it_fits(gemma: Path, free: Callable[[int], Placement]) -> None:
    place = free(whole(gemma) + RESERVE + MB)
    with structlog.testing.capture_logs() as lines:
        found = loaded(gemma, place, exactness=options.Exactness.LAW)
    assert (found.context.branches, found.context.can_copy) == (7, True)
    [placed] = [line["placed"] for line in lines if line["event"] == "model_placed"]
    assert placed.startswith("all 7 layers on cpu: 1 MB of weights, ")
    assert "windows" not in placed


def test_windows_alone_are_kept_where_all_does_not_fit_and_the_line_and_the_note_say_so(
    gemma: Path, free: Callable[[int], Placement]
) -> None:
    place = free(whole(gemma) + RESERVE - MB)
    with structlog.testing.capture_logs() as lines:
        found = loaded(gemma, place)
    assert (found.level, found.context.branches, found.context.can_copy) == ("law", 0, False)
    assert "only sliding windows are kept" in found.note
    [placed] = [line["placed"] for line in lines if line["event"] == "model_placed"]
    assert placed.endswith("; the cache keeps only sliding windows")


def test_strict_keeps_all_or_nothing(gemma: Path, free: Callable[[int], Placement]) -> None:
    """A window's cache wraps around, and the order of its cells then depends on what was taken back."""
    strict = options.Exactness.STRICT
    found = loaded(gemma, free(whole(gemma)), exactness=strict)
    assert (found.level, found.context.can_copy) == ("strict", True)
    with pytest.raises(StartError, match="and 10 MB are free"):
        load(settings(gemma, exactness=strict), free(10 * MB))


def test_a_drafter_keeps_windows_alone_where_all_does_not_fit(gemma: Path, free: Callable[[int], Placement]) -> None:
    for amount, branches in ((whole(gemma) + RESERVE + MB, 7), (whole(gemma) + RESERVE - 2 * MB, 0)):
        found = drafter(gemma, free(amount))
        assert found._context.branches == branches
        found.close()


def test_a_context_longer_than_the_model_knows_is_refused_before_it_is_loaded(
    gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "__init__", lambda *_, **__: pytest.fail("it is loaded"))
    with pytest.raises(StartError, match="--ctx 5000: the model was trained for at most 4096 tokens"):
        load(settings(gemma, ctx=5000), place_target("cpu"))


def test_a_device_that_runs_out_after_all_is_told_with_figures(gemma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise LlamaError("unable to allocate CUDA0 buffer")

    monkeypatch.setattr(Model, "__init__", refuse)
    with pytest.raises(StartError, match="unable to allocate CUDA0 buffer; draftmesh estimates all 7 layers on cpu"):
        load(settings(gemma), place_target("cpu"))


def test_what_llama_cpp_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "new.gguf", architecture="quux")
    with pytest.raises(StartError, match=r"new.gguf as a model: .*unknown model architecture: 'quux'[^;]*$"):
        load(settings(path, ctx=512), place_target("cpu"))
