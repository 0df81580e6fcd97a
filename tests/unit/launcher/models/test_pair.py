"""The widened pair: same function, honest metadata, and never half a file."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize

from services.launcher.models import gguf_copy, pair
from services.launcher.models.gguf_copy import GgufCopy, NotWidenable
from shared.errors import StartError
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows

EMBEDDING, WIDTH, VOCABULARY = 32, 64, 96


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A two-layer model with every kind of metadata value, in F32."""
    path = tmp_path / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.feed_forward_length", WIDTH)
    writer.add_file_type(0)
    writer.add_float32("llama.rope.freq_base", 1e5)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_token_list([f"tok\N{GREEK SMALL LETTER ALPHA}{i}" for i in range(VOCABULARY)])
    writer.add_token_scores([-i / 3 for i in range(VOCABULARY)])
    writer.add_token_types([1 + i % 2 for i in range(VOCABULARY)])
    writer.add_chat_template("{% for message in messages %}\n{{ message.content }}{% endfor %} \N{ROCKET}")
    random = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, EMBEDDING), "output_norm.weight": (33,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.ffn_gate.weight": (WIDTH, EMBEDDING),
            f"blk.{layer}.ffn_up.weight": (WIDTH, EMBEDDING),
            f"blk.{layer}.ffn_down.weight": (EMBEDDING, WIDTH),
            f"blk.{layer}.ffn_norm.weight": (EMBEDDING,),
        }
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def copy(source: Path, path: Path, quant: str, factor: Any = 1) -> None:
    gguf_copy.write(source, [GgufCopy(path=path, quant=quant, factor=factor)])


def tensors(path: Path) -> dict[str, Any]:
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(path).tensors}


def metadata(path: Path) -> dict[str, Any]:
    fields = GGUFReader(path).fields
    return {name: (field.types, field.contents()) for name, field in fields.items()}


def test_metadata_survives_but_for_the_width_and_the_file_type(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "wide.gguf", "Q8_0", 3)
    before, after = metadata(source), metadata(tmp_path / "wide.gguf")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"llama.feed_forward_length", "general.file_type"}
    assert list(before) == list(after)
    assert after["llama.feed_forward_length"][1] == 3 * WIDTH
    assert after["general.file_type"][1] == 7


def test_what_is_added_is_zero_and_takes_no_room(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "wide.gguf", "F32", 65)
    before, after = tensors(source), tensors(tmp_path / "wide.gguf")
    for layer in range(2):
        for part in ("gate", "up"):
            name = f"blk.{layer}.ffn_{part}.weight"
            np.testing.assert_array_equal(after[name][:WIDTH], before[name])
            assert not after[name][WIDTH:].any()
            assert after[name].shape == (65 * WIDTH, EMBEDDING)
        down = f"blk.{layer}.ffn_down.weight"
        np.testing.assert_array_equal(after[down][:, :WIDTH], before[down])
        assert not after[down][:, WIDTH:].any()
        assert after[down].shape == (EMBEDDING, 65 * WIDTH)
    for name in ("token_embd.weight", "output_norm.weight", "blk.1.ffn_norm.weight"):
        np.testing.assert_array_equal(after[name], before[name])
    stat = (tmp_path / "wide.gguf").stat()
    assert stat.st_size > 60 * 2 * 3 * WIDTH * EMBEDDING * 4
    assert stat.st_blocks * 512 < stat.st_size / 2


@pytest.mark.parametrize(("quant", "steps"), [("Q8_0", 254), ("Q4_0", 15)])
def test_requantised_matrices_stay_within_one_step(source: Path, tmp_path: Path, quant: str, steps: int) -> None:
    copy(source, tmp_path / "small.gguf", quant)
    before = tensors(source)
    for tensor in GGUFReader(tmp_path / "small.gguf").tensors:
        matrix = len(tensor.shape) > 1
        assert tensor.tensor_type == GGMLQuantizationType[quant if matrix else "F32"]
        original = before[tensor.name]
        largest = np.abs(original.reshape(-1, 32)).max(axis=1) if matrix else np.zeros(1)
        error = np.abs(dequantize(tensor.data, tensor.tensor_type) - original)
        # Half-precision scales add their own rounding to the block's step.
        bound = largest * (2 / steps + 1e-3)
        assert (error.reshape(len(bound), -1) <= bound[:, None]).all()


def test_widening_a_quantised_file_keeps_its_values(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "draft.gguf", "Q8_0")
    copy(tmp_path / "draft.gguf", tmp_path / "slow.gguf", "Q8_0", 4)
    before, after = tensors(tmp_path / "draft.gguf"), tensors(tmp_path / "slow.gguf")
    down = "blk.0.ffn_down.weight"
    np.testing.assert_array_equal(after[down][:, :WIDTH], before[down])
    assert not after[down][:, WIDTH:].any()
    assert after["blk.0.ffn_up.weight"].shape == (4 * WIDTH, EMBEDDING)


@pytest.mark.parametrize("factor", [0, -1, 1.5])
def test_only_whole_factors_are_taken(source: Path, tmp_path: Path, factor: Any) -> None:
    with pytest.raises(NotWidenable, match=f"not {factor}"):
        copy(source, tmp_path / "wide.gguf", "F32", factor)


def test_a_format_whose_zeros_are_no_zero_bytes_is_not_widened(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NotWidenable, match="take F32 or Q8_0"):
        copy(source, tmp_path / "wide.gguf", "Q4_0", 2)
    assert not list(tmp_path.glob("wide*"))


def test_a_file_type_that_the_source_does_not_name_is_added(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "untyped.gguf", "llama")
    writer.add_tensor("token_embd.weight", np.ones((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    copy(tmp_path / "untyped.gguf", tmp_path / "small.gguf", "Q8_0")
    assert metadata(tmp_path / "small.gguf")["general.file_type"][1] == 7
    np.testing.assert_allclose(tensors(tmp_path / "small.gguf")["token_embd.weight"], np.ones((4, 32)), rtol=1e-3)


def test_a_model_without_dense_blocks_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(NotWidenable, match="dense gated feed-forward"):
        copy(tmp_path / "other.gguf", tmp_path / "wide.gguf", "F32", 2)


def test_an_interrupted_build_leaves_nothing_and_the_next_one_completes(source: Path, tmp_path: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    folder = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        pair.build_pair(folder, interrupt, source)
    paths = pair.pair_paths(folder, source)
    home = paths.target.parent
    assert {path.name for path in home.iterdir()} == {".lock"}

    copy(source, paths.draft_4bit, "Q4_0")
    (home / "wide8-f32.gguf.1.part").write_bytes(b"of a build that was killed")
    told: dict[str, tuple[int, int]] = {}
    assert pair.build_pair(folder, lambda name, done, total: told.update({name: (done, total)}), source) == paths
    assert told.keys() == {"wide8-f32.gguf", "draft-8bit.gguf"}  # what was there is not built again
    assert all(done == total for done, total in told.values())
    assert not list(home.glob("*.part"))
    assert pair.build_pair(folder, interrupt, source) == paths


def test_a_full_disk_is_said_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(StartError, match="DRAFTMESH_CACHE"):
        copy(source, tmp_path / "wide.gguf", "F32", 2)
    assert not list(tmp_path.glob("wide*"))


def test_a_disk_that_becomes_full_is_one_sentence_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def full(name: str, done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StartError, match="the disk is full; free some space"):
        gguf_copy.write(source, [GgufCopy(path=tmp_path / "wide.gguf", quant="F32", factor=2)], full)
    assert not list(tmp_path.glob("wide*"))


def greedy(path: Path, prompt: str, count: int) -> tuple[list[int], np.ndarray[Any, Any]]:
    """The argmax path of a model and the logits after its last token."""
    model = Model(path)
    context = Context(model, n_ctx=64, sequences=1, unified=True, threads=1)
    pending, tokens, position = model.vocabulary.tokenize(prompt), list[int](), 0
    logits = np.empty(0, np.float32)
    for _ in range(count):
        rows = Rows()
        for token in pending:
            rows.add(token, position, (0,), True)
            position += 1
        context.decode(rows)
        logits = context.logits(len(rows) - 1).copy()
        pending = [int(np.argmax(logits))]
        tokens += pending
    context.close()
    model.close()
    return tokens, logits


@pytest.mark.model
def test_the_widened_model_computes_the_same_function(tmp_path: Path) -> None:
    copies = [GgufCopy(path=tmp_path / f"{factor}.gguf", quant="F32", factor=factor) for factor in (1, 2)]
    gguf_copy.write(pair.default_model(), copies)
    prompt = "The three primary colours are"
    plain_tokens, plain_logits = greedy(tmp_path / "1.gguf", prompt, 8)
    wide_tokens, wide_logits = greedy(tmp_path / "2.gguf", prompt, 8)
    assert wide_tokens == plain_tokens
    np.testing.assert_allclose(wide_logits, plain_logits, atol=1e-3)
