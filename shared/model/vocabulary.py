"""Vocabularies for other machines: a GGUF without tensors, a fingerprint, and the first difference of two.

Pure except for reading the model file.
"""

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from shared.model import gguf_header

_MAX_TOKENS: Final = 1 << 21  # the largest known vocabularies have some 260,000
_texts: Final = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=_MAX_TOKENS)])
_ALIGNMENT: Final = 32  # as GGUF's default


def vocabulary_gguf(path: Path) -> bytes:
    """The file's metadata as a GGUF without tensors, which loads with `vocab_only` and has the chat template.

    Raises `NotGGUF` for anything but a little-endian GGUF, `OSError` if it cannot be read.
    """
    end = gguf_header.read(path).end
    with path.open("rb") as file:
        head = file.read(end)
    data = head[:8] + bytes(8) + head[16:]  # the number of tensors becomes 0
    return data + bytes(-len(data) % _ALIGNMENT)


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
