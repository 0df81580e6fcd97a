"""The wire is plain MessagePack: a service in another language reads and writes every message with its own library.

The examples are in `plain_messages`. The independent package `msgpack` plays the other language.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from inspect import getmembers, isclass
from pathlib import Path
from typing import Any, Final, get_args

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from services.gateway.storage.kept_turns import KeptTurn, TurnStore
from services.gateway.storage.records import Origin, RecordStore
from shared.fleet.registry import Registry, content_digest, draft_keeper
from shared.machine.devices import Device
from shared.wire import codec, keys, messages, reading
from shared.wire.broker import Broker
from shared.wire.drafts import Inbox, Outboxes, send
from shared.wire.jobs import Append, Claim, JobStore
from shared.wire.messages import (
    Announced,
    Chunk,
    Commit,
    Hint,
    Job,
    Proposal,
)
from tests.contract.plain_messages import EXAMPLES, ORIGIN, PLAIN_ORIGIN, PLAIN_TURN, TURN, Example

ROOT: Final = Path(__file__).parents[2]
DOCUMENTED: Final = ROOT / "docs/reference/messages.md"


def name(example: Example) -> str:
    return type(example.ours).__name__


def of(kind: type) -> Example:
    """The example of one type."""
    return next(example for example in EXAMPLES if type(example.ours) is kind)


def read(data: bytes) -> Any:
    """As another language reads a message: the version, then MessagePack and nothing behind it."""
    assert data[0] == 1
    return msgpack.unpackb(data[1:])


def written(plain: Any) -> bytes:
    """As another language writes a message."""
    return bytes([1]) + bytes(msgpack.packb(plain))


def plainly(value: object) -> Any:
    """Any value of ours as another language has it after reading it."""
    return msgpack.unpackb(msgspec.msgpack.encode(value))


def inside(value: object) -> Iterator[object]:
    """Every struct and dataclass in a value, itself among them."""
    if isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from inside(getattr(value, field))
    elif is_dataclass(value):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from inside(item)


def defaults(kind: Any) -> dict[str, Any]:
    """The default of every field of a struct or dataclass; `NODEFAULT` or `MISSING` for one that is required."""
    if is_dataclass(kind):
        return {field.name: field.default for field in dataclass_fields(kind)}
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
    }


def documented() -> dict[str, list[str]]:
    """Each message's fields by place, as the page of the reference lists them; the tag is at place 0."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^##+ ", DOCUMENTED.read_text(), flags=re.M)[1:]:
        rows = re.findall(r"^\| (\d*) \| (?:`(\w+)`)? \|.*$", section, flags=re.M)
        if rows:
            title = section.partition("\n")[0]
            found[title] = [field for _, field in rows]
            assert [place for place, _ in rows] in ([str(number) for number in range(len(rows))], [""] * len(rows))
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_another_language_reads_what_we_write(example: Example) -> None:
    assert read(codec.encode(example.ours)) == example.plain


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_we_read_what_another_language_writes(example: Example) -> None:
    assert example.decode(written(example.plain)) == example.ours


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_places_beyond_those_that_we_know_are_ignored(example: Example) -> None:
    assert example.decode(written([*example.plain, "of the future", {"more": 1}])) == example.ours


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_fields_with_defaults_may_be_left_out_at_the_end(example: Example) -> None:
    left_out = {field: value for field, value in defaults(type(example.ours)).items() if value is not msgspec.NODEFAULT}
    short = example.decode(written(example.plain[: len(example.plain) - len(left_out)]))
    assert short == msgspec.structs.replace(example.ours, **left_out)


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_a_value_stands_at_the_place_that_the_reference_gives_its_field(example: Example) -> None:
    tag, *places = read(codec.encode(example.ours))
    assert tag == type(example.ours).__struct_config__.tag
    nothing, *names = documented()[name(example)]
    assert nothing == ""
    for field, value in zip(names, places, strict=True):
        assert value == plainly(getattr(example.ours, field)), field


def test_every_message_has_an_example() -> None:
    tagged = {
        kind
        for _, kind in getmembers(messages, isclass)
        if issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
    }
    decoded = {Job, Chunk, *get_args(Hint), Proposal, *get_args(Announced)}
    assert tagged == decoded == {type(example.ours) for example in EXAMPLES}


def test_every_part_of_a_message_is_in_an_example() -> None:
    known = {
        kind
        for _, kind in getmembers(messages, isclass)
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
    } | {Device}
    assert known == {type(part) for example in EXAMPLES for part in inside(example.ours)}


def test_every_field_of_an_example_differs_from_its_default() -> None:
    """A field that has its default everywhere could stand at any place and no test here would see it."""
    for example in EXAMPLES:
        for part in inside(example.ours):
            assert not [field for field, value in defaults(type(part)).items() if getattr(part, field) == value], part


def test_the_reference_lists_every_type_with_its_fields_in_order() -> None:
    parts: set[Any] = {type(part) for example in EXAMPLES for part in inside(example.ours)} | {KeptTurn, Origin}
    tagged = {type(example.ours) for example in EXAMPLES}
    assert documented() == {kind.__name__: [*([""] if kind in tagged else []), *defaults(kind)] for kind in parts}


def test_every_module_that_speaks_messagepack_is_covered_here() -> None:
    speakers = {
        str(path.relative_to(ROOT))
        for folder in ("shared", "services")
        for path in (ROOT / folder).rglob("*.py")
        if "msgspec.msgpack" in path.read_text()
    }
    covered = {codec.__name__, KeptTurn.__module__, Origin.__module__, "shared.model.vocabulary"}
    assert speakers == {f"{module.replace('.', '/')}.py" for module in covered}


# ---------------------------------------------------------------- where each lies in Redis


async def raw(broker: Broker, command: str, *arguments: Any) -> Any:
    """One command as any client sends it."""
    return await broker.redis.execute_command(command, *arguments)  # type: ignore[attr-defined]


def first_fields(entries: Sequence[Any]) -> dict[bytes, bytes]:
    """The fields of a stream's first entry, from a raw reply of `XRANGE`."""
    (_, fields), *_ = entries
    return dict(fields) if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))


async def test_a_job_and_its_chunks_lie_where_the_documentation_says(broker: Broker) -> None:
    job, chunk = of(Job), of(Chunk)
    store = JobStore(broker.redis, broker.blocking, job.ours.model)
    await store.submit(job.ours, limit=4)
    assert read(await raw(broker, "HGET", "draftmesh:{r1}:job", "payload")) == job.plain
    claim = await store.claim("r1", "verifier-1")
    assert isinstance(claim, Claim)
    await store.commit([Append(request_id="r1", epoch=claim.epoch, base=0, chunk=chunk.ours)])
    entries = await broker.redis.xrange("draftmesh:{r1}:log")
    assert read(first_fields(entries)[b"c"]) == chunk.plain


async def test_a_job_that_another_language_wrote_can_be_claimed(broker: Broker) -> None:
    job = of(Job)
    store = JobStore(broker.redis, broker.blocking, job.ours.model)
    await store.submit(job.ours, limit=4)
    await raw(broker, "HSET", "draftmesh:{r1}:job", "payload", written(job.plain))
    assert await reading.read_job(broker.redis, "r1") == job.ours


async def test_hints_and_proposals_lie_where_the_documentation_says(broker: Broker) -> None:
    proposal, commit = of(Proposal), of(Commit)
    await raw(broker, "XADD", "draftmesh:outbox:drafter-1:verifier-1", "*", "m", written(proposal.plain))
    outboxes = Outboxes(broker.redis, broker.blocking, "verifier-1")
    outboxes.follow(["drafter-1"])
    assert [sent.proposals for sent in await outboxes.read(1)] == [[proposal.ours]]
    await Inbox(broker.redis, broker.blocking, "drafter-1").open()
    await send(broker.redis, [("drafter-1", commit.ours)])
    entries = await broker.redis.xrange("draftmesh:inbox:drafter-1")
    assert read(first_fields(entries)[b"0"]) == commit.plain


@pytest.mark.parametrize("kind", get_args(Announced))
async def test_a_card_lies_where_the_documentation_says(broker: Broker, kind: type) -> None:
    example = of(kind)
    registry = Registry(broker.redis)
    await registry.beat(example.ours)
    assert read(await raw(broker, "GET", f"draftmesh:card:{example.ours.id}")) == example.plain
    await raw(broker, "SET", f"draftmesh:card:{example.ours.id}", written(example.plain))
    assert await registry.announced() == [example.ours]


async def test_a_kept_turn_is_messagepack_without_a_version(broker: Broker) -> None:
    store = TurnStore(broker.redis)
    await store.keep("call_1", TURN)
    assert msgpack.unpackb(await raw(broker, "GET", "draftmesh:turn:call_1")) == PLAIN_TURN
    await raw(broker, "SET", "draftmesh:turn:call_2", msgpack.packb(PLAIN_TURN))
    assert await store.find(["call_2"]) == {"call_2": TURN}


async def test_the_origin_of_a_record_is_messagepack_without_a_version(broker: Broker) -> None:
    store = RecordStore(broker.redis)
    await store.begin("resp_1", ORIGIN, [b"an event"], 1000)
    fields = first_fields(await broker.redis.xrange(store.key("resp_1")))
    assert msgpack.unpackb(fields[b"origin"]) == PLAIN_ORIGIN


async def test_a_draft_models_vocabulary_is_a_deflated_list_of_bytes(broker: Broker) -> None:
    texts = [b"a", b"\xff", b""]
    registry = Registry(broker.redis)
    keeper = draft_keeper(registry, "drafter-1", texts)
    await keeper.keep()
    packed = msgpack.packb(texts, use_bin_type=True)
    assert (
        zlib.decompress(await raw(broker, "GET", keys.draft_vocabulary("drafter-1", content_digest(packed)))) == packed
    )
