"""What a model file says of itself is read right, fast, and only when the file is new."""

import struct
from pathlib import Path

import pytest

from services.launcher.facts import model_facts
from services.launcher.facts.model_facts import Facts, Library, shares_vocabulary
from shared.model import gguf_header
from shared.model.gguf_header import Header, NotGGUF
from shared.model.llama.model import Model
from shared.model.model_source import resolve
from shared.model.vocabulary import fingerprint
from tests import tiny_gguf


def facts(path: Path, *lengths: int) -> Facts:
    return model_facts.describe([gguf_header.read(path)], lengths)


def metadata_only(architecture: str, **numbers: int | list[int]) -> Facts:
    """Facts of a model that has only these integers; `_` in names stands for `.` where the key has one."""
    values = {f"{architecture}.{key.replace('__', '.')}": value for key, value in numbers.items()}
    return model_facts.describe([Header({"general.architecture": architecture, **values}, ())])


def test_the_default_model_is_described_as_llama_cpp_sees_it() -> None:
    path = resolve("default")
    found = facts(path)
    model = Model(path, vocab_only=True)
    try:
        texts = model.vocabulary.texts()
    finally:
        model.close()
    assert (found.architecture, found.quant, found.parameters) == ("llama", "Q4_1", 134_515_008)
    assert (found.context, found.embedding, len(found.layers), found.tied) == (8192, 576, 30, True)
    assert found.cache == (2 * 3 * 64,) * 30
    assert found.fingerprints == {49152: fingerprint(texts)}
    assert found.weights == 96_576_768


def test_odd_tokens_have_the_texts_that_llama_cpp_gives_them(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    model = Model(path, vocab_only=True)
    try:
        texts = model.vocabulary.texts()
    finally:
        model.close()
    assert len(set(texts)) == len(tiny_gguf.TOKENS)
    assert facts(path).fingerprints == {len(texts): fingerprint(texts)}


def test_weights_are_told_apart_by_where_they_go(tmp_path: Path) -> None:
    tied = facts(tiny_gguf.write(tmp_path / "tied.gguf"))
    assert tied.layers == (32 * 32 * 4 + 32 * 4,) * 2
    assert (tied.input, tied.output, tied.tied) == (8 * 32 * 4, 32 * 4, True)
    own = facts(tiny_gguf.write(tmp_path / "own.gguf", output=True))
    assert (own.input, own.output, own.tied) == (8 * 32 * 4, 8 * 32 * 4 + 32 * 4, False)


def test_the_shards_of_a_model_are_counted_together(tmp_path: Path) -> None:
    one = gguf_header.read(tiny_gguf.write(tmp_path / "one.gguf"))
    half = len(one.tensors) // 2
    split = [Header(one.metadata, one.tensors[:half]), Header({}, one.tensors[half:])]
    assert model_facts.describe(split) == model_facts.describe([one])


@pytest.mark.parametrize(
    ("found", "cached"),
    [
        # Llama 3.1 8B: 128 KiB a token in 16 bits.
        (
            metadata_only(
                "llama",
                block_count=32,
                embedding_length=4096,
                attention__head_count=32,
                attention__head_count_kv=8,
            ),
            131072 // 2,
        ),
        # Qwen3 30B-A3B: heads wider than the embedding shared out; 96 KiB.
        (
            metadata_only(
                "qwen3moe",
                block_count=48,
                embedding_length=2048,
                attention__head_count=32,
                attention__head_count_kv=4,
                attention__key_length=128,
                attention__value_length=128,
            ),
            98304 // 2,
        ),
        # Without grouped heads each head has its own keys.
        (metadata_only("gpt2", block_count=12, embedding_length=768, attention__head_count=12), 12 * 2 * 768),
        # Gemma 3 4B: windows of 1,024 tokens save nothing, because all is kept.
        (
            metadata_only(
                "gemma3",
                block_count=34,
                embedding_length=2560,
                attention__head_count=8,
                attention__head_count_kv=4,
                attention__key_length=256,
                attention__value_length=256,
                attention__sliding_window=1024,
            ),
            34 * 2 * 4 * 256,
        ),
        # Gemma 3n E4B: the last 15 of 35 layers cache nothing.
        (
            metadata_only(
                "gemma3n",
                block_count=35,
                embedding_length=2048,
                attention__head_count=8,
                attention__head_count_kv=2,
                attention__key_length=256,
                attention__value_length=256,
                attention__shared_kv_layers=15,
            ),
            20 * 2 * 2 * 256,
        ),
        # DeepSeek V2 Lite with latent attention: one head of 512 + 64 and its 512 values.
        (
            metadata_only(
                "deepseek2",
                block_count=27,
                embedding_length=2048,
                attention__head_count=16,
                attention__head_count_kv=1,
                attention__key_length=576,
                attention__value_length=512,
                attention__kv_lora_rank=512,
            ),
            27 * (576 + 512),
        ),
        # Qwen3-Next: every fourth of 48 layers attends.
        (
            metadata_only(
                "qwen3next",
                block_count=48,
                embedding_length=2048,
                attention__head_count=16,
                attention__head_count_kv=2,
                attention__key_length=256,
                attention__value_length=256,
                full_attention_interval=4,
                ssm__state_size=128,
            ),
            12 * 2 * 2 * 256,
        ),
        # Granite 4 hybrid: layers without heads of keys.
        (
            metadata_only(
                "granitehybrid",
                block_count=3,
                embedding_length=1536,
                attention__head_count=12,
                attention__head_count_kv=[0, 4, 0],
                ssm__state_size=128,
            ),
            2 * 4 * 128,
        ),
    ],
    ids=["llama", "qwen3moe", "gpt2", "gemma3", "gemma3n", "deepseek2", "qwen3next", "granitehybrid"],
)
def test_the_cache_of_known_architectures(found: Facts, cached: int) -> None:
    assert sum(found.cache) == cached
    assert found.recurrent == (found.architecture in ("qwen3next", "granitehybrid"))


def test_vocabularies_are_compared_by_what_both_have(tmp_path: Path) -> None:
    tokens = tiny_gguf.TOKENS
    paths = [
        tiny_gguf.write(tmp_path / "whole.gguf", tokens),
        tiny_gguf.write(tmp_path / "padded.gguf", [*tokens, b"pad1", b"pad2"]),
        tiny_gguf.write(tmp_path / "other.gguf", [*tokens[:-1], b"other"]),
        tiny_gguf.write(tmp_path / "unlike.gguf", [b"other", *tokens[1:], b"pad1"]),
    ]
    whole, padded, other, unlike = Library(tmp_path / "kept.json").read([[path] for path in paths])
    assert isinstance(whole, Facts)
    assert isinstance(padded, Facts)
    assert isinstance(other, Facts)
    assert isinstance(unlike, Facts)
    assert shares_vocabulary(whole, padded)
    assert shares_vocabulary(padded, whole)
    assert not shares_vocabulary(whole, other)
    assert not shares_vocabulary(padded, other)
    assert not shares_vocabulary(padded, unlike)


def test_absurdly_many_layers_are_refused() -> None:
    with pytest.raises(NotGGUF, match="4294967295 layers"):
        metadata_only("llama", block_count=0xFFFFFFFF)


def test_models_without_tokens_share_nothing() -> None:
    none = metadata_only("llama", block_count=1)
    assert not shares_vocabulary(none, none)


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "cache" / "kept.json"
    reads: list[Path] = []
    read = gguf_header.read

    def counted(path: Path) -> Header:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(gguf_header, "read", counted)
    first = Library(kept).read([[path]])
    assert Library(kept).read([[path]]) == first
    assert reads == [path]
    tiny_gguf.write(path, layers=3)
    (changed,) = Library(kept).read([[path]])
    assert isinstance(changed, Facts)
    assert len(changed.layers) == 3
    # Another model with a shorter vocabulary asks for one more fingerprint of the same file.
    shorter = tiny_gguf.write(tmp_path / "shorter.gguf", tiny_gguf.TOKENS[:4])
    one, other = Library(kept).read([[path], [shorter]])
    assert isinstance(one, Facts)
    assert isinstance(other, Facts)
    assert shares_vocabulary(one, other)


def test_a_spoilt_cache_is_made_anew(tmp_path: Path) -> None:
    path, kept = tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "kept.json"
    kept.write_bytes(b"{")
    (found,) = Library(kept).read([[path]])
    assert isinstance(found, Facts)
    assert b"tiny.gguf" in kept.read_bytes()


def test_what_cannot_be_read_is_one_line_and_the_others_are_read(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.gguf", tiny_gguf.write(tmp_path / "good.gguf")
    bad.write_bytes(b"GGUF" + bytes(100))
    found = Library(tmp_path / "kept.json").read([[bad], [good], [tmp_path / "absent.gguf"]])
    assert isinstance(found[0], str)
    assert "is not a GGUF file that can be read" in found[0]
    assert isinstance(found[1], Facts)
    assert isinstance(found[2], str)


@pytest.mark.parametrize("cut", [0, 3, 20, 24, 40, 200, 400])
def test_a_cut_header_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_gguf.write(tmp_path / "tiny.gguf").read_bytes()[:cut])
    with pytest.raises(NotGGUF):
        gguf_header.read(path)


def test_a_header_with_absurd_counts_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "absurd.gguf"
    for counts in ((1 << 60, 0), (0, 1 << 60)):
        path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, *counts) + bytes(64))
        with pytest.raises(NotGGUF):
            gguf_header.read(path)
