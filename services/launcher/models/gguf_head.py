"""Writes the part of a GGUF file before the weights, from another file's: copies metadata byte for byte.

Format: ggml's `docs/gguf.md`, v3, little-endian. `gguf_header` reads it.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from shared.model.gguf_header import Header

FILE_TYPE: Final = "general.file_type"
UINT32: Final = 4  # GGUF's numbers of types
_INT32, _STRING, _ARRAY = 5, 8, 9
_COUNTS: Final = struct.Struct("<4sIQQ")  # magic, version, tensors, values


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """One entry of the directory: `shape` as numpy has it, `kind` as ggml numbers types, `offset` behind the head."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return size_of(self.shape, self.kind)


def size_of(shape: tuple[int, ...], kind: int) -> int:
    """Bytes of values of a type."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    return math.prod(shape) // int(block) * int(size)


def laid_out(tensors: Iterable[tuple[str, tuple[int, ...], int]], alignment: int) -> tuple[list[PlacedTensor], int]:
    """Tensors, given by name, shape and type, one after the other behind the head; and their bytes in all."""
    placed, offset = [], 0
    for name, shape, kind in tensors:
        placed.append(PlacedTensor(name, shape, kind, offset))
        offset += placed[-1].size + -placed[-1].size % alignment
    return placed, offset


Value = int | Sequence[int] | Sequence[bytes]  # a number, or an array of numbers or of texts


def make(source: bytes, header: Header, changes: Mapping[str, Value], tensors: Sequence[PlacedTensor]) -> bytes:
    """The head of a file with `tensors` and with the metadata of `source`, the other file's bytes up to `header.end`.

    `changes` replace or add values. Padded to the alignment.
    """
    kept = {key: struct.pack("<I", place.kind) + source[place.at : place.end] for key, place in header.places.items()}
    values = kept | {key: _packed(value) for key, value in changes.items()}
    head = _COUNTS.pack(b"GGUF", 3, len(tensors), len(values))
    head += b"".join(_string(key.encode()) + value for key, value in values.items())
    for tensor in tensors:
        shape = tensor.shape[::-1]
        head += _string(tensor.name.encode()) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *shape, tensor.kind, tensor.offset
        )
    return head + bytes(-len(head) % header.alignment)


def _packed(value: Value) -> bytes:
    """A value after its type."""
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    numbers = [one for one in value if isinstance(one, int)]
    if numbers:
        return struct.pack(f"<IIQ{len(numbers)}i", _ARRAY, _INT32, len(numbers), *numbers)
    texts = [one for one in value if isinstance(one, bytes)]
    return struct.pack("<IIQ", _ARRAY, _STRING, len(texts)) + b"".join(map(_string, texts))


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text
