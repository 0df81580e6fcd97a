"""Models of random weights with a real vocabulary: any size, the same on every machine, and nothing to carry there.

Weights are drawn so that values keep size one from layer to layer, as in a trained model, and the likeliest token is
mostly clear. What such a model says means nothing; what it costs is what a trained one of its shape costs.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from services.launcher import gguf_head
from shared import gguf_header

_F32: Final = 0  # ggml's number of the type
_HEAD: Final = 64  # values of an attention head, as most models have at least
_SPREAD: Final = 5.0  # standard deviation of the logits
_SEED: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense model: `width` and `inner` are values of a row, outside and inside the feed-forward."""

    width: int
    inner: int
    layers: int

    def metadata(self) -> dict[str, int]:
        """As GGUF has it, for architecture llama."""
        heads = self.width // _HEAD
        return {
            gguf_head.FILE_TYPE: 0,
            "llama.block_count": self.layers,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.inner,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": max(1, heads // 4),
            "llama.rope.dimension_count": _HEAD,
        }

    def tensors(self, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, as numpy has them."""
        keys = self.metadata()["llama.attention.head_count_kv"] * _HEAD
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

    def as_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def write(path: Path, vocabulary: Path, shape: Shape) -> None:
    """Write a model of `shape` in F32 to `path`, with the vocabulary and chat template of a GGUF of type llama."""
    header = gguf_header.read(vocabulary)
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tensors, offset = [], 0
    for name, dimensions in shape.tensors(len(tokens)):
        tensors.append(_Tensor(name, dimensions, _F32, offset))
        size = 4 * math.prod(dimensions)
        offset += size + -size % header.alignment
    with vocabulary.open("rb") as source, path.open("wb") as file:
        file.write(gguf_head.make(source.read(header.end), header, shape.metadata(), tensors))
        start = file.tell()
        random = np.random.default_rng(_SEED)
        for tensor in tensors:
            file.seek(start + tensor.offset)
            if len(tensor.shape) == 1:
                values = np.ones(tensor.shape, np.float32)
            else:
                values = random.standard_normal(tensor.shape, np.float32) * _scale(tensor)
            values.tofile(file)
        file.truncate(start + offset)


def _scale(tensor: _Tensor) -> np.float32:
    if tensor.name == "token_embd.weight":
        return np.float32(1)
    spread = _SPREAD if tensor.name == "output.weight" else 1.0
    return np.float32(spread / math.sqrt(tensor.shape[-1]))


def keep_vocabulary(source: Path, path: Path) -> None:
    """Write what stands before the weights of `source` to `path`, as a model without any."""
    header = gguf_header.read(source)
    with source.open("rb") as file:
        path.write_bytes(gguf_head.make(file.read(header.end), header, {}, []))
