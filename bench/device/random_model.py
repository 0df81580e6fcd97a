"""Models of random weights with a real vocabulary: any size, the same on every machine, and nothing to carry there.

Weights are drawn so that values keep size one from layer to layer, as in a trained model, and the likeliest token is
mostly clear. What such a model says means nothing; what it costs is what a trained one of its shape costs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from services.launcher.models import gguf_head
from services.launcher.models.gguf_head import PlacedTensor, Value
from shared.model import gguf_header
from shared.model.gguf_header import Header

_F32: Final = 0  # ggml's number of the type
_TOKENS, _KINDS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"
_HEAD: Final = 64  # values of an attention head, as most models have at least
_SPREAD: Final = 5.0  # standard deviation of the logits
_SEED: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense model: `width` and `inner` are values of a row, outside and inside the feed-forward.

    `tokens` is the most that its vocabulary may have; 0: all of it.
    """

    width: int
    inner: int
    layers: int
    tokens: int = 0

    def metadata(self) -> dict[str, Value]:
        """As GGUF has it, for architecture llama."""
        heads, key_heads = self._heads
        return {
            gguf_head.FILE_TYPE: 0,
            "llama.block_count": self.layers,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.inner,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": key_heads,
            "llama.rope.dimension_count": _HEAD,
        }

    @property
    def _heads(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        heads = self.width // _HEAD
        return heads, max(1, heads // 4)

    def tensors(self, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, as numpy has them."""
        keys = self._heads[1] * _HEAD
        yield "token_embd.weight", (vocabulary, self.width)
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight", (self.width,)
            yield f"blk.{layer}.attn_q.weight", (self.width, self.width)
            yield f"blk.{layer}.attn_k.weight", (keys, self.width)
            yield f"blk.{layer}.attn_v.weight", (keys, self.width)
            yield f"blk.{layer}.attn_output.weight", (self.width, self.width)
            yield f"blk.{layer}.ffn_norm.weight", (self.width,)
            yield f"blk.{layer}.ffn_gate.weight", (self.inner, self.width)
            yield f"blk.{layer}.ffn_up.weight", (self.inner, self.width)
            yield f"blk.{layer}.ffn_down.weight", (self.width, self.inner)
        yield "output_norm.weight", (self.width,)
        yield "output.weight", (vocabulary, self.width)


def write(path: Path, vocabulary: Path, shape: Shape) -> None:
    """Write a model of `shape` in F32 to `path`, with the vocabulary and chat template of a GGUF of type llama."""
    header = gguf_header.read(vocabulary)
    words = header.texts(_TOKENS)[: shape.tokens or None]
    changes = {**shape.metadata(), **_vocabulary(header, words)}
    named = ((name, dimensions, _F32) for name, dimensions in shape.tensors(len(words)))
    tensors, size = gguf_head.laid_out(named, header.alignment)
    with vocabulary.open("rb") as source, path.open("wb") as file:
        file.write(gguf_head.make(source.read(header.end), header, changes, tensors))
        start = file.tell()
        random = np.random.default_rng(_SEED)
        for tensor in tensors:
            file.seek(start + tensor.offset)
            if len(tensor.shape) == 1:
                values = np.ones(tensor.shape, np.float32)
            else:
                values = random.standard_normal(tensor.shape, np.float32) * _scale(tensor)
            values.tofile(file)
        file.truncate(start + size)


def _vocabulary(header: Header, words: Sequence[bytes]) -> dict[str, Value]:
    """The first tokens, and the merges that make them: in a vocabulary of byte pairs each merge makes a token."""
    known = frozenset(words)
    return {
        _TOKENS: words,
        _KINDS: header.numbers(_KINDS, len(words)),
        _MERGES: [merge for merge in header.texts(_MERGES) if merge.replace(b" ", b"", 1) in known],
        "llama.vocab_size": len(words),
    }


def _scale(tensor: PlacedTensor) -> np.float32:
    if tensor.name == "token_embd.weight":
        return np.float32(1)
    spread = _SPREAD if tensor.name == "output.weight" else 1.0
    return np.float32(spread / math.sqrt(tensor.shape[-1]))


def keep_vocabulary(source: Path, path: Path) -> None:
    """Write what stands before the weights of `source` to `path`, as a model without any."""
    header = gguf_header.read(source)
    with source.open("rb") as file:
        path.write_bytes(gguf_head.make(file.read(header.end), header, {}, []))
