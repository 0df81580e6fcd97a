"""Vocabularies for other machines: a GGUF without tensors, a fingerprint, and how far two agree.

Pure except for reading the model file.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
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
_MOST_DIFFERENT: Final = 0.01  # of the common ids; versions of one tokenizer differ in far fewer, others in nearly all
_SHOWN: Final = 64  # bytes of a token in a message


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


@dataclass(frozen=True, slots=True)
class VocabularyComparison:
    """How far a draft model's vocabulary agrees with a target's: of the `common` ids both have, `different` differ.

    `first` says what the first of these is, in words; empty if there is none.
    """

    common: int
    different: int = 0
    first: str = ""

    @property
    def can_draft(self) -> bool:
        """Whether so few ids differ that guesses can be right.

        A guess is only a hint: an id that means something else to the target is refused there and costs a row. So
        renamed special tokens and other padding do no harm, but another tokenizer would never guess right.
        """
        return self.different <= _MOST_DIFFERENT * self.common

    def __str__(self) -> str:
        if not self.different:
            return f"agrees on all {self.common} common tokens"
        return f"{self.different} of {self.common} common tokens differ, the first at {self.first}"


def compare(target: Sequence[bytes], draft: Sequence[bytes]) -> VocabularyComparison:
    """Compare two vocabularies by their ids' bytes. Sizes may differ, because many models pad the end."""
    common = min(len(target), len(draft))
    differing = [token for token, (ours, theirs) in enumerate(zip(target, draft, strict=False)) if ours != theirs]
    if not differing:
        return VocabularyComparison(common)
    first = differing[0]
    shown = f"{first}, which is {draft[first][:_SHOWN]!r}, not {target[first][:_SHOWN]!r}"
    return VocabularyComparison(common, len(differing), shown)
