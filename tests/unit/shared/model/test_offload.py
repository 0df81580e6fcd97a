"""Which layers go where, and the sentence about what does not fit: the figures are right, and what it advises fits."""

import re
from dataclasses import replace

import pytest

from shared.model import memory, offload
from shared.model.memory import RESERVE, Layout
from shared.model.offload import Offload, place
from tests.sized_model import Sized

GB = 10**9

MODEL = Sized()
WINDOWED = Sized(window=1024, windowed=tuple(layer % 6 != 5 for layer in range(32)))
LAYOUT = Layout(context=4096, parallel=8, outputs=264)
WHOLE = memory.need(MODEL, LAYOUT, 33, on_cpu=False)


def on_gpu(free: int, wish: str = "auto", here: int = 64 * GB, layout: Layout = LAYOUT) -> Offload:
    return place(MODEL, layout, wish, "cuda:0", free, here)


def on_cpu(free: int, layout: Layout = LAYOUT) -> Offload:
    return place(MODEL, layout, "auto", "cpu", free, free)


def test_a_gpu_gets_all_layers_where_they_fit_and_else_as_many_as_do() -> None:
    assert on_gpu(WHOLE.total + RESERVE).layers == 33
    part = on_gpu(WHOLE.total + RESERVE - 1)
    assert part.layers == 32
    layer = 130_000_000 + 2048 * 2 * LAYOUT.cells
    assert on_gpu(WHOLE.total + RESERVE - 5 * layer).layers == 28
    for placed in (part, on_gpu(2 * GB), on_gpu(GB)):
        assert placed.need.total + RESERVE <= placed.free or not placed.layers
        assert placed.shortage() == ""
        assert placed.computes_here


def test_a_line_says_which_layers_go_where_and_what_they_take() -> None:
    assert re.fullmatch(
        r"29 of 33 layers on cuda:0, the rest on cpu: 4\.1 GB of weights, 3\.8 GB of cache and 0\.\d GB to compute in,"
        r" and 8\.5 GB are free",
        str(on_gpu(8_500_000_000)),
    )
    assert str(on_gpu(64 * GB)).startswith("all 33 layers on cuda:0: 4.6 GB of weights, 4.4 GB of cache and 0.")
    assert str(on_cpu(64 * GB)).startswith("all 33 layers on cpu: 4.9 GB of weights")
    assert str(on_gpu(offload._UNKNOWN)).endswith("to compute in")


@pytest.mark.parametrize(("wish", "layers"), [("all", 33), ("20", 20), ("0", 0), ("99", 33)])
def test_a_wish_is_followed_whatever_fits(wish: str, layers: int) -> None:
    assert on_gpu(GB, wish).layers == layers


@pytest.mark.parametrize("text", ["auto", "all", "0", "20"])
def test_wishes_are_words_or_numbers(text: str) -> None:
    assert offload.is_layer_count(text)


@pytest.mark.parametrize("text", ["-1", "", "some", "2.5", "²", "1e3"])
def test_nothing_else_is_a_wish(text: str) -> None:
    assert not offload.is_layer_count(text)


def test_the_sentence_names_what_it_needs_what_is_free_and_what_would_fit() -> None:
    said = on_gpu(7 * GB, "all").shortage()
    found = re.fullmatch(
        r"it needs (?P<need>[\d.]+) GB on cuda:0 \(4\.6 GB of weights, 4\.4 GB of cache and 0\.\d GB to compute in\),"
        r" and 7\.0 GB are free; what would fit: --gpu-layers (?P<layers>\d+) \(the CPU computes the rest\), or"
        r" --ctx (?P<ctx>\d+), or --parallel (?P<parallel>\d), or a quantisation of at most (?P<weights>[\d.]+) GB",
        said,
    )
    assert found, said
    assert float(found["need"]) == pytest.approx(WHOLE.total / GB, abs=0.06)
    assert on_gpu(7 * GB, found["layers"]).shortage() == ""
    shorter = replace(LAYOUT, context=int(found["ctx"]))
    assert on_gpu(7 * GB, "all", layout=shorter).shortage() == ""
    fewer = replace(LAYOUT, parallel=int(found["parallel"]))
    assert on_gpu(7 * GB, "all", layout=fewer).shortage() == ""
    assert float(found["weights"]) * GB + WHOLE.cache + WHOLE.compute <= 7 * GB


def test_the_cpu_has_no_layers_to_give_away() -> None:
    said = on_cpu(7 * GB).shortage()
    assert said.startswith("it needs 9.")
    assert " GB of memory (" in said
    assert "--ctx" in said
    assert "--gpu-layers" not in said
    assert on_cpu(64 * GB).shortage() == ""


def test_what_no_option_can_mend_takes_a_smaller_model() -> None:
    assert on_cpu(GB // 2).shortage().endswith("; use a smaller model")


def test_what_a_gpu_leaves_must_fit_the_memory_of_the_cpu() -> None:
    said = on_gpu(3 * GB, here=2 * GB).shortage()
    assert "of memory beside what lies on cuda:0" in said
    assert "and 2.0 GB are free" in said
    assert on_gpu(3 * GB, here=12 * GB).shortage() == ""


def test_windows_alone_are_kept_only_where_that_helps() -> None:
    whole = memory.need(WINDOWED, LAYOUT, 33, on_cpu=False).total + RESERVE
    alone = memory.windows_alone(LAYOUT)
    assert offload.windows_or_all(WINDOWED, LAYOUT, "cuda:0", whole) == LAYOUT
    assert offload.windows_or_all(WINDOWED, LAYOUT, "cuda:0", whole - 1) == alone
    assert offload.windows_or_all(MODEL, LAYOUT, "cuda:0", GB) == LAYOUT
    short = replace(LAYOUT, context=512)  # shorter than the window: nothing to save
    assert offload.windows_or_all(WINDOWED, short, "cuda:0", GB) == short
    assert str(place(WINDOWED, alone, "auto", "cuda:0", whole - 1, whole)).endswith(
        "the cache keeps only sliding windows"
    )
