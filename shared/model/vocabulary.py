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
_SPLIT: Final = "split."  # keys of a model in several files
CHAT_TEMPLATE: Final = "tokenizer.chat_template"  # and with a dot and a name behind it, templates for other uses
_STRING: Final = 8  # GGUF's number of the type


def vocabulary_gguf(path: Path, chat_template: str = "") -> bytes:
    """The file's metadata as a GGUF without tensors, which loads with `vocab_only` and has the chat template.

    A `chat_template` replaces the file's own. It does not say that it is one of several files, because llama.cpp would
    then look for the others. Raises `NotGGUF` for anything but a little-endian GGUF, `OSError` if it cannot be read.
    """
    header = gguf_header.read(path)
    with path.open("rb") as file:
        head = file.read(header.end)
    left_out = (_SPLIT, CHAT_TEMPLATE) if chat_template else (_SPLIT,)
    values = [head[place.start : place.end] for key, place in header.places.items() if not key.startswith(left_out)]
    if chat_template:
        values.append(_string(CHAT_TEMPLATE.encode()) + struct.pack("<I", _STRING) + _string(chat_template.encode()))
    data = head[:8] + struct.pack("<QQ", 0, len(values)) + b"".join(values)  # no tensors
    return data + bytes(-len(data) % _ALIGNMENT)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


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
