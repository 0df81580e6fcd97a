"""Writes what stands before the weights in a GGUF file, after another file's: metadata is copied byte for byte.

Format: ggml's `docs/gguf.md`, v3, little-endian. `gguf_header` reads it.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from shared.gguf_header import Header

FILE_TYPE: Final = "general.file_type"
UINT32: Final = 4  # GGUF's number of the type
_COUNTS: Final = struct.Struct("<4sIQQ")  # magic, version, tensors, values


class Tensor(Protocol):
    """One entry of the directory: `shape` as numpy has it, `offset` behind the head."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def kind(self) -> int: ...
    @property
    def offset(self) -> int: ...


def make(source: bytes, header: Header, changes: Mapping[str, int], tensors: Sequence[Tensor]) -> bytes:
    """The head of a file with `tensors` and with the metadata of `source`, which is that file's up to `header.end`.

    Each of `changes` replaces a value of 32 bits, or is added. Padded to the alignment.
    """
    metadata = bytearray(source[_COUNTS.size :])
    for key, value in changes.items():
        if key in header.places:
            struct.pack_into("<I", metadata, header.places[key].at - _COUNTS.size, value)
        else:
            metadata += _string(key) + struct.pack("<II", UINT32, value)
    head = _COUNTS.pack(b"GGUF", 3, len(tensors), len(header.metadata.keys() | changes.keys())) + metadata
    for tensor in tensors:
        shape = tensor.shape[::-1]
        head += _string(tensor.name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, tensor.kind, tensor.offset)
    return bytes(head + bytes(-len(head) % header.alignment))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
