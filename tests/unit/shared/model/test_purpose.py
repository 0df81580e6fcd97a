"""Models that write no text are refused in one sentence, before anything of them is loaded."""

from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter, PoolingType

from shared.errors import StartError
from shared.model import model_source
from shared.model.purpose import unfit
from tests import tiny_gguf

REFUSED = [
    ({"general.architecture": "bert"}, "an embedding model"),
    ({"general.architecture": "nomic-bert", "nomic-bert.pooling_type": 1}, "an embedding model"),
    ({"general.architecture": "jina-bert-v2"}, "an embedding model"),
    ({"general.architecture": "bert", "bert.pooling_type": 4}, "a reranking model"),
    ({"general.architecture": "qwen3", "qwen3.pooling_type": 3}, "an embedding model"),
    ({"general.architecture": "qwen3", "qwen3.pooling_type": 4}, "a reranking model"),
    ({"general.architecture": "llama", "llama.attention.causal": False}, "a diffusion model"),
    ({"general.architecture": "dream"}, "a diffusion model"),
    ({"general.architecture": "t5"}, "an encoder-decoder model"),
    ({"general.architecture": "clip"}, "image or audio part"),
    ({"general.architecture": "llama", "general.type": "adapter"}, "(adapter)"),
]


@pytest.mark.parametrize(("metadata", "reason"), REFUSED)
def test_what_writes_no_text_is_refused(metadata: dict[str, Any], reason: str) -> None:
    assert reason in unfit(metadata)
    assert "\n" not in unfit(metadata)


@pytest.mark.parametrize(
    "metadata",
    [
        {"general.architecture": "llama"},
        {"general.architecture": "llama", "general.type": "model", "llama.attention.causal": True},
        {"general.architecture": "gemma3", "gemma3.pooling_type": 0},
        {},
    ],
)
def test_what_writes_text_is_not(metadata: dict[str, Any]) -> None:
    assert unfit(metadata) == ""


def embedding_model(path: Path) -> Path:
    writer = GGUFWriter(path, "nomic-bert")
    writer.add_block_count(2)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_causal_attention(False)
    writer.add_token_list([b"a", b"b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("option", ["--target-model", "--draft-model"])
def test_a_file_is_refused_by_the_option_that_named_it(option: str, tmp_path: Path) -> None:
    path = embedding_model(tmp_path / "nomic.gguf")
    with pytest.raises(
        StartError, match=f"{option} .*nomic.gguf: it is an embedding model, which turns texts into vectors"
    ):
        model_source.resolve(str(path), option)


def test_a_model_that_writes_is_taken(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    assert model_source.resolve(str(path)) == path
