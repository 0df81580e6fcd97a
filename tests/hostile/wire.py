"""Bytes and messages that nobody of ours would put into Redis: each must cost nothing but itself."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from shared.wire import codec
from shared.wire.messages import Chunk, Close, Commit, DrafterCard, GatewayCard, Job, Open, Proposal, Sampling
from tests.service.scripted import card

HONEST: Final[dict[str, Any]] = {
    "job": Job(request_id="r", model="m", prompt=(1, 2), sampling=Sampling(seed=1), max_tokens=3),
    "chunk": Chunk(tokens=(1, 2), sources=("d", ""), drafted=2, accepted=1),
    "open": Open(request_id="r", reply_to="verifier-1", epoch=1, eog=(2,), n_vocab=64, lead=4),
    "commit": Commit(request_id="r", epoch=1, base=0, tokens=(1,), lead=4),
    "close": Close(request_id="r"),
    "proposal": Proposal(request_id="r", epoch=1, base=0, prefix_hash=7, tokens=(1,), scores=(0.5,), drafter="d"),
    "verifier": card(),
    "gateway": GatewayCard(id="gateway-1", host="h", pid=1, url="http://x", streams=0),
    "drafter": DrafterCard(
        id="drafter-1", host="h", pid=1, kind="model", model="m", fingerprint="f", vocabulary="v", n_vocab=64,
        device="cpu", capacity=4, sessions=0, tokens_per_second=0.0,
    ),
}  # fmt: skip
_VERSION: Final = bytes((codec.VERSION,))
_WRONG: Final[tuple[Any, ...]] = (
    None, True, -1, 1 << 31, (1 << 64) - 1, -(1 << 63), 1.5, float("nan"), float("inf"), float("-inf"), "", "x" * 300,
    "\x00", b"", b"\xff\xfe", [], [None], [-1], [1 << 63], [1.5], ["x"], [[]], [[1, float("nan")]], [0] * 5_000, {},
    {"": None}, {1: 2}, msgspec.msgpack.Ext(5, b"x"),
)  # fmt: skip


def blobs() -> Iterator[tuple[str, bytes]]:
    """Bytes by what is wrong with them."""
    yield "nothing", b""
    yield "a version and nothing", _VERSION
    for version in (0, 2, 99, 0x92, 0xFF):
        yield f"version {version}", bytes((version,)) + codec.encode(HONEST["close"])[1:]
    for name, body in {
        "text": b"hello world",
        "JSON": b'{"tokens": [1]}',
        "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
        "zeros": bytes(64),
        "ones": b"\xff" * 64,
        "unused": b"\xc1",
        "an array bomb": b"\xdd\xff\xff\xff\xff",
        "a map bomb": b"\xdf\xff\xff\xff\xff",
        "a text bomb": b"\xdb\xff\xff\xff\xff",
        "a binary bomb": b"\xc6\xff\xff\xff\xff",
        "arrays in arrays": b"\x91" * 100_000,
        "maps in maps": b"\x81\xa1a" * 50_000,
        "an extension": b"\xd4\x05x",
        "a timestamp": b"\xd6\xff\x00\x00\x00\x00",
        "duplicate keys": b"\x82\xa1a\x01\xa1a\x02",
        "bad UTF-8": b"\x92\xa5hello\xa2\xff\xfe",
        "9 MiB": bytes(9 << 20),
    }.items():
        yield name, _VERSION + body
    for name, message in HONEST.items():
        whole = codec.encode(message)
        yield f"{name} twice", whole + whole[1:]
        yield f"{name} with a byte more", whole + b"\xc0"
        for cut in {2, 3, len(whole) // 2, len(whole) - 1} - {len(whole)}:
            yield f"{name} cut at {cut}", whole[:cut]
        for position in range(1, len(whole), max(1, len(whole) // 6)):
            yield (
                f"{name} with byte {position} turned",
                whole[:position] + bytes((whole[position] ^ 0xFF,)) + whole[position + 1 :],
            )


def wrong_fields(name: str) -> Iterator[tuple[str, bytes]]:
    """The honest message of that name with each field in turn replaced by whatever does not belong there."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(HONEST[name]))
    for index in range(len(fields)):
        for value in _WRONG:
            broken = [*fields[:index], value, *fields[index + 1 :]]
            yield f"{name}[{index}]={str(value)[:20]}", _VERSION + msgspec.msgpack.encode(broken)
    yield f"{name} without fields", _VERSION + msgspec.msgpack.encode(fields[:1])
    yield f"{name} with more fields", _VERSION + msgspec.msgpack.encode([*fields, *["?"] * 100])


def entries(field: str) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Fields of a stream's entry where only `field` should be."""
    name = field.encode()
    yield "another field", {b"zzz": b"1"}
    yield "an empty field", {name: b""}
    yield "no name", {b"": b""}
    yield "many fields", {b"f%d" % index: b"x" for index in range(1_000)}
    for what, blob in blobs():
        yield what, {name: blob}
