"""The context over a tiny model: what it refuses, and what it takes of a device's memory by our reckoning too."""

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C
import pytest

from shared.model import memory, model_source
from shared.model.llama import library
from shared.model.llama.context import Context, number_bytes
from shared.model.llama.model import Model
from shared.model.memory import Layout
from shared.model.rows import LlamaError, Rows
from tests import random_models

MIB = 1 << 20
VOCABULARY = 20_000


@contextmanager
def told() -> Iterator[list[str]]:
    """What llama.cpp logs within the block."""
    lines: list[str] = []

    @C.llama_log_callback  # type: ignore[untyped-decorator]
    def log(_: int, text: bytes, __: Any) -> None:
        lines.append(text.decode())

    C.llama_log_set(log, ctypes.c_void_p(0))
    try:
        yield lines
    finally:
        C.llama_log_set(library._log, ctypes.c_void_p(0))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path: Path = tmp_path_factory.mktemp("models") / "wide.gguf"
    loaded = Model(random_models.llama(path, n_tokens=VOCABULARY))
    yield loaded
    loaded.close()


def space(model: Model, max_outputs: int) -> float:
    """Bytes of the compute buffers, as llama.cpp tells them."""
    with told() as lines:
        context = Context(
            model, n_ctx=1024, sequences=1, unified=True, threads=1, flash_attn=True, max_outputs=max_outputs
        )
        context.close()
    return sum_of(lines, r"compute buffer size = +([\d.]+) MiB")


def sum_of(lines: list[str], pattern: str) -> float:
    """Bytes of all that is told so, in MiB."""
    return sum(MIB * float(found) for found in re.findall(pattern, "".join(lines)))


def test_the_compute_buffer_has_room_for_the_logits_of_the_outputs_alone(model: Model) -> None:
    saved = space(model, 0) - space(model, 72)
    assert saved == pytest.approx((512 - 72) * VOCABULARY * 4, rel=0.03)


def rows(count: int, outputs: int) -> Rows:
    filled = Rows()
    for position in range(count):
        filled.add(position % 50, position, (0,), position >= count - outputs)
    return filled


def test_more_outputs_than_there_is_room_for_are_refused_and_nothing_is_changed(model: Model) -> None:
    context = Context(model, n_ctx=256, sequences=1, unified=True, threads=1, max_outputs=4)
    try:
        with pytest.raises(LlamaError, match="logits of at most 4 rows, not 5"):
            context.decode(rows(20, 5))
        context.decode(rows(20, 4))
        assert context.logits(19).shape == (VOCABULARY,)
    finally:
        context.close()


def test_there_is_room_for_one_output_of_every_sequence_whatever_was_asked_for(model: Model) -> None:
    """llama.cpp stops the process if there is not."""
    context = Context(model, n_ctx=64, sequences=4, unified=True, branches=7, threads=1, max_outputs=1)
    try:
        assert context.max_outputs == 4 * (1 + 7)
    finally:
        context.close()


LAYOUTS = [
    Layout(context=1024, parallel=2, outputs=72),
    Layout(context=2048, parallel=8, outputs=264),
    Layout(context=2048, parallel=8, outputs=264, unified=False, branches=0),
    Layout(context=2048, parallel=4, outputs=132, swa_full=False, branches=0),
    Layout(context=2048, parallel=4, outputs=132, swa_full=False, branches=0, unified=False),
    Layout(context=2048, parallel=2, outputs=72, number_bytes=number_bytes("f32", "f32")),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("write", [random_models.llama, random_models.gemma3])
def test_what_we_reckon_a_context_takes_is_what_llama_cpp_takes(
    write: Callable[[Path], Path], layout: Layout, tmp_path: Path
) -> None:
    path = write(tmp_path / "model.gguf")
    sizes = model_source.sizes(path, "", "")
    reckoned = memory.need(sizes, layout, memory.number_of_layers(sizes), on_cpu=True)
    model = Model(path)
    types = "f32" if layout.number_bytes > 2 else "f16"
    with told() as lines:
        context = Context(
            model, n_ctx=layout.context, sequences=layout.parallel, unified=layout.unified, branches=layout.branches,
            swa_full=layout.swa_full, max_outputs=layout.outputs, threads=1, flash_attn=True, cache_type_k=types,
            cache_type_v=types,
        )  # fmt: skip
        context.close()
    weights = model.size
    model.close()
    assert reckoned.weights == weights
    assert reckoned.cache == pytest.approx(sum_of(lines, r"llama_kv_cache: size = +([\d.]+) MiB"), rel=0.12)
    assert reckoned.compute == pytest.approx(sum_of(lines, r"compute buffer size = +([\d.]+) MiB"), rel=0.15)
