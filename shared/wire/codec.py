"""Messages to bytes and back: one version byte, then MessagePack, checked against its type before it is used.

Anything that is not exactly such a message raises `CodecError`; nothing is executed, guessed or repaired.
"""

from functools import partial
from typing import Final, TypeVar

import msgspec

from shared.wire.messages import Announced, Chunk, Hint, Job, Proposal

VERSION: Final = 1
# The largest real message is a job: a million prompt tokens at five bytes each, with some reserve.
MAX_BYTES: Final = 8 << 20

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


class CodecError(ValueError):
    """The bytes are not a message of the expected type and a known version."""


def encode(message: Job | Chunk | Hint | Proposal | Announced) -> bytes:
    """The message as bytes, which the `decode_…` function of its type reads."""
    return bytes((VERSION,)) + _encoder.encode(message)


def _decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T:
    if len(data) > MAX_BYTES:
        raise CodecError(f"message of {len(data)} bytes; the limit is {MAX_BYTES}")
    if not data or data[0] != VERSION:
        raise CodecError(f"unknown message version {data[:1].hex() or 'none'}; this release speaks {VERSION}")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(str(error)) from error


decode_job = partial(_decode, msgspec.msgpack.Decoder(Job))
decode_chunk = partial(_decode, msgspec.msgpack.Decoder(Chunk))
decode_hint = partial(_decode, msgspec.msgpack.Decoder(Hint))
decode_card = partial(_decode, msgspec.msgpack.Decoder(Announced))
_proposal = msgspec.msgpack.Decoder(Proposal)


def decode_proposal(data: bytes) -> Proposal:
    """A proposal with one score per token, or `CodecError`."""
    proposal = _decode(_proposal, data)
    _check_tree(proposal)
    return proposal


def _check_tree(proposal: Proposal) -> None:
    tokens = len(proposal.tokens)
    if len(proposal.scores) != tokens:
        raise CodecError(f"{tokens} tokens but {len(proposal.scores)} scores")
    if proposal.parents and len(proposal.parents) != tokens:
        raise CodecError(f"{tokens} tokens but {len(proposal.parents)} parents")
    if any(parent >= index for index, parent in enumerate(proposal.parents)):
        raise CodecError("a token that follows itself or a later one")
