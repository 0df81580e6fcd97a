"""A chat template by name or file takes the place of a model's own, also in the vocabulary that gateways get."""

from pathlib import Path

import pytest

from shared.errors import StartError
from shared.model import chat_templates, gguf_header
from shared.model.llama.model import Model
from shared.model.vocabulary import vocabulary_gguf


def test_names_files_and_the_models_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{{ 'é' }}")
    assert chat_templates.find(str(file)) == "{{ 'é' }}"
    assert chat_templates.find("own") == chat_templates.find("") == ""
    assert "<|im_start|>" in chat_templates.find("chatml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "neither chatml, gemma, llama3, mistral, vicuna, zephyr or own, nor a file that can be read"),
        (b"\xff", "not a text file in UTF-8"),
        (b" ", "a template has 1 to 1048576 bytes, and this file has 1"),
        (bytes((1 << 20) + 1), "and this file has 1048577"),
    ],
)
def test_what_is_neither_is_refused_in_a_sentence(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "mine.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartError) as caught:
        chat_templates.find(str(file))
    assert str(caught.value).startswith(f"--chat-template {file}: ")
    assert message in str(caught.value)


def test_the_vocabulary_has_the_given_template_and_no_other(model_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(vocabulary_gguf(model_path, "{{ 'é' }}"))
    model = Model(path, vocab_only=True)
    assert model.vocabulary.chat_template() == "{{ 'é' }}"
    model.close()
    metadata, own = gguf_header.read(path).metadata, gguf_header.read(model_path).metadata
    assert metadata == own | {"tokenizer.chat_template": "{{ 'é' }}"}
