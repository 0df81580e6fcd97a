"""Which files are a whole model; those that are not are refused in one sentence that says what to name instead."""

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGUFWriter
from rich.console import Console

from services.launcher.models import fetching
from shared.errors import StartError
from shared.model import gguf_header, model_source
from shared.model.llama.model import Model
from shared.model.model_files import headers
from shared.model.tensor_types import BLOCKS
from shared.model.vocabulary import vocabulary_gguf
from tests import random_models, tiny_gguf


def refusal(path: Path, option: str = "--target-model") -> str:
    with pytest.raises(StartError) as caught:
        model_source.check(str(path), option)
    message = str(caught.value)
    assert message.startswith(f"{option} {path}: ")
    assert "\n" not in message
    return message.partition(f"{path}: ")[2]


def split(folder: Path, name: str = "big", count: int = 2) -> list[Path]:
    """A model in `count` files, as llama.cpp's gguf-split writes it: all metadata in the first."""
    whole = gguf_header.read(source := random_models.llama(folder / "source.gguf", layers=count))
    data = source.read_bytes()
    at = -(-len(whole.tensors) // count)
    paths = []
    for number in range(count):
        writer = GGUFWriter(None, "llama")
        path = folder / f"{name}-{number + 1:05}-of-{count:05}.gguf"
        if not number:
            random_models.describe(writer, "llama", layers=count)
        else:
            writer.kv_data[0].clear()
        for key, value in (("split.no", number), ("split.count", count)):
            writer.add_uint16(key, value)
        writer.add_int32("split.tensors.count", len(whole.tensors))
        for tensor in whole.tensors[number * at : (number + 1) * at]:
            values = np.frombuffer(data, np.float32, tensor.elements, tensor.start)
            writer.add_tensor(tensor.name, values.reshape(tensor.shape))
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(path)
    source.unlink()
    return paths


def test_a_split_model_loads_and_so_does_its_vocabulary_alone(tmp_path: Path) -> None:
    first, second = split(tmp_path)
    assert [len(header.tensors) for header in headers(first)] == [10, 10]
    assert fetching.find(str(first), "--target-model", Console(quiet=True)) == first
    model = Model(first)
    vocabulary = tmp_path / "vocabulary.gguf"
    vocabulary.write_bytes(vocabulary_gguf(first))
    first.unlink()
    second.unlink()
    alone = Model(vocabulary, vocab_only=True)
    assert alone.vocabulary.texts() == model.vocabulary.texts()
    assert not [key for key in gguf_header.read(vocabulary).metadata if key.startswith("split.")]
    alone.close()
    model.close()


def test_a_vocabulary_of_one_file_is_its_metadata_byte_for_byte(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "model.gguf")
    end = gguf_header.read(path).end
    made = vocabulary_gguf(path)
    assert made[16:end] == path.read_bytes()[16:end]


def test_another_file_than_the_first_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    second = split(tmp_path)[1]
    assert refusal(second) == "it is file 2 of the 2 of a split model; name big-00001-of-00002.gguf"


def test_missing_files_are_named(tmp_path: Path) -> None:
    first, *others = split(tmp_path, count=4)
    others[0].unlink()
    assert refusal(first) == "1 of its 4 files are not beside it: big-00002-of-00004.gguf"
    for other in others[1:]:
        other.unlink()
    assert refusal(first, "--draft-model").endswith("big-00003-of-00004.gguf and 1 more")


def test_a_renamed_first_file_is_refused_because_the_others_are_not_found(tmp_path: Path) -> None:
    first = split(tmp_path)[0]
    renamed = first.rename(tmp_path / "renamed.gguf")
    assert "its name ends in -00001-of-00002.gguf" in refusal(renamed)


def test_a_file_of_another_split_is_refused(tmp_path: Path) -> None:
    first, second = split(tmp_path)
    second.write_bytes(first.read_bytes())
    assert refusal(first) == f"{second.name} belongs to another split model than {first.name}"


@pytest.mark.parametrize("part", ["last byte", "tensors", "list of tensors", "metadata"])
@pytest.mark.parametrize("cut_shard", [False, True])
def test_a_file_that_was_cut_off_is_refused_in_one_sentence(tmp_path: Path, part: str, cut_shard: bool) -> None:
    first, second = split(tmp_path)
    path = second if cut_shard else first
    header = gguf_header.read(path)
    size = {
        "last byte": header.tensors[-1].start + 4 * header.tensors[-1].elements - 1,
        "tensors": header.tensors[-2].start,
        "list of tensors": header.end + 8,
        "metadata": header.end - 3,
    }[part]
    os.truncate(path, size)
    assert refusal(first) == f"{path.name} was cut off, such as by a download that broke: fetch it again"


def test_a_file_without_a_models_tensors_is_refused(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary.gguf"
    vocabulary.write_bytes(vocabulary_gguf(tiny_gguf.write(tmp_path / "model.gguf")))
    assert "only a part of a model" in refusal(vocabulary)


def test_an_adapter_and_a_projector_are_refused(tmp_path: Path) -> None:
    for architecture, kind in (("llama", "adapter"), ("clip", "mmproj"), ("clip", "model")):
        path = tmp_path / f"{architecture}-{kind}.gguf"
        writer = GGUFWriter(path, architecture)
        writer.add_type(kind)
        writer.add_tensor("blk.0.attn_q.weight.lora_a", np.zeros((2, 32), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        assert "part of a model" in refusal(path)


def test_the_sizes_of_types_are_ggufs() -> None:
    assert {int(kind): tuple(map(int, size)) for kind, size in GGML_QUANT_SIZES.items()} == BLOCKS
