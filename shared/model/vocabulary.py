"""Vocabularies in the form for other machines: a GGUF without tensors, a fingerprint, and the first difference of two.

Pure but for reading the model file. The format is GGUF v2 and v3, little-endian (ggml's `docs/gguf.md`).
"""

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec

_MAX_TOKENS: Final = 1 << 21  # the largest known vocabularies have some 260,000
_texts: Final = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=_MAX_TOKENS)])
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING: Final = 8
_ARRAY: Final = 9
_ALIGNMENT: Final = 32


class NotGGUF(ValueError):
    """The file is not a GGUF that this release can read."""


def vocabulary_gguf(path: str | Path) -> bytes:
    """The file's metadata as a GGUF with no tensors: loads with `vocab_only`, keeps tokeniser and chat template.

    Raises `NotGGUF` for anything but a little-endian GGUF, `OSError` if it cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(24)
        if len(head) < 24 or head[:4] != b"GGUF":
            raise NotGGUF(f"{path} is not a GGUF file")
        version, _, metadata_count = struct.unpack("<IQQ", head[4:])
        if version not in (2, 3):
            raise NotGGUF(f"{path} is GGUF version {version}; versions 2 and 3 are supported")
        try:
            for _ in range(metadata_count):
                _skip_string(file)
                _skip_value(file, _integer(file, 4))
        except (struct.error, KeyError) as error:
            raise NotGGUF(f"{path} has damaged metadata") from error
        end = file.tell()
        file.seek(24)
        metadata = file.read(end - 24)
    data = b"GGUF" + struct.pack("<IQQ", version, 0, metadata_count) + metadata
    return data + bytes(-len(data) % _ALIGNMENT)


def _integer(file: BinaryIO, size: int) -> int:
    return int(struct.unpack("<I" if size == 4 else "<Q", file.read(size))[0])


def _skip_string(file: BinaryIO) -> None:
    file.seek(_integer(file, 8), 1)


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _skip_string(file)
    elif kind == _ARRAY:
        element, count = _integer(file, 4), _integer(file, 8)
        if element in _SIZES:
            file.seek(_SIZES[element] * count, 1)
        else:
            for _ in range(count):
                _skip_value(file, element)
    else:
        file.seek(_SIZES[kind], 1)


def pack(texts: Sequence[bytes]) -> bytes:
    """A vocabulary's texts as bytes that `unpack` reads."""
    return msgspec.msgpack.encode(texts)


def unpack(data: bytes) -> list[bytes]:
    """The texts that `pack` packed. Raises `ValueError` for other data, or too many texts."""
    try:
        return _texts.decode(data)
    except msgspec.MsgspecError:
        raise ValueError("the data is not a list of token texts") from None


def fingerprint(texts: Sequence[bytes]) -> str:
    """A digest of every id's bytes, in order: equal fingerprints mean equal vocabularies."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(struct.pack("<I", len(text)) + text)
    return digest.hexdigest()[:32]


def first_difference(one: Sequence[bytes], other: Sequence[bytes]) -> int | None:
    """The first id whose bytes differ within the common range, or None. Sizes may differ, because many models pad
    the end."""
    for token, (text, counterpart) in enumerate(zip(one, other, strict=False)):
        if text != counterpart:
            return token
    return None
