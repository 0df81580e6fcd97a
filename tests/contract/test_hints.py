"""The hint plane and the registry: lossy and bounded, and every key expires."""

import asyncio
import zlib
from functools import partial

import msgspec
import pytest

from shared.fleet.registry import (
    MAX_DRAFTER_CARD,
    SERVED_TTL_MS,
    Registry,
    VocabularyKeeper,
    content_digest,
    draft_keeper,
)
from shared.wire import codec, drafts, keys
from shared.wire.broker import Broker
from shared.wire.drafts import Inbox, Outboxes, propose, send
from shared.wire.messages import MAX_NAME, Close, Commit, GatewayCard, Proposal
from tests.patience import HANG_S
from tests.service.scripted import card
from tests.toys import drafter_card

CARD = drafter_card("d")
VERIFIER = card(aliases=("fast",))


def commit(base: int) -> Commit:
    return Commit(request_id="r", epoch=1, base=base, tokens=(4,), lead=8)


def inbox_of(broker: Broker, drafter: str = "d") -> Inbox:
    return Inbox(broker.redis, broker.blocking, drafter)


def proposal(token: int, drafter: str = "d") -> Proposal:
    return Proposal(request_id="r", epoch=1, base=0, prefix_hash=1, tokens=(token,), scores=(0.5,), drafter=drafter)


async def test_hints_arrive_in_order_and_once(broker: Broker) -> None:
    inbox = inbox_of(broker)
    assert await inbox.read(1) == []
    await send(broker.redis, [("d", commit(0)), ("d", commit(1)), ("other", commit(7))])
    assert await inbox.read(1) == [commit(0), commit(1)]
    await send(broker.redis, [("d", Close(request_id="r"))])
    assert await inbox.read(1) == [Close(request_id="r")]
    assert await inbox.read(1) == []


async def test_what_a_drafter_is_told_at_once_is_one_entry(broker: Broker) -> None:
    inbox = inbox_of(broker)
    await inbox.open()
    await send(broker.redis, [("d", commit(base)) for base in range(12)])
    assert await broker.redis.xlen(keys.inbox("d")) == 1  # type: ignore[attr-defined]
    assert await inbox.read(1) == [commit(base) for base in range(12)]


async def test_a_hint_that_does_not_decode_costs_no_other_of_its_entry(broker: Broker) -> None:
    inbox = inbox_of(broker)
    await inbox.open()
    entry = {"0": codec.encode(commit(0)), "1": b"nonsense", "2": codec.encode(commit(2))}
    pipeline = broker.redis.pipeline(transaction=False)
    pipeline.xadd(keys.inbox("d"), entry, maxlen=100)
    await pipeline.execute()
    assert await inbox.read(1) == [commit(0), commit(2)]
    assert inbox.undecodable == 1


async def test_a_new_reader_skips_what_is_older_than_itself(broker: Broker) -> None:
    await inbox_of(broker).open()
    await send(broker.redis, [("d", commit(0))])
    inbox = inbox_of(broker)
    assert await inbox.read(1) == []
    await send(broker.redis, [("d", commit(1))])
    assert await inbox.read(1) == [commit(1)]


async def test_rubbish_in_an_outbox_is_counted_and_skipped(broker: Broker) -> None:
    outboxes = Outboxes(broker.redis, broker.blocking, "v")
    outboxes.follow(["d"])
    bad = Proposal(
        request_id="r", epoch=1, base=0, prefix_hash=1, tokens=(1, 2), scores=(0.5,), drafter="d"
    )  # one score short
    pipeline = broker.redis.pipeline(transaction=False)
    forged = proposal(4, "another")
    for payload in (b"", b"nonsense", codec.encode(bad), codec.encode(forged), codec.encode(proposal(5))):
        pipeline.xadd(keys.outbox("d", "v"), {"m": payload}, maxlen=100)
    pipeline.xadd(keys.outbox("d", "v"), {"another field": b"x"}, maxlen=100)
    await pipeline.execute()
    assert [(sent.drafter, sent.proposals) for sent in await outboxes.read(1)] == [("d", [proposal(5)])]
    assert outboxes.undecodable == 5


async def test_what_was_read_is_trimmed_and_what_was_not_stays(broker: Broker) -> None:
    outboxes = Outboxes(broker.redis, broker.blocking, "v")
    outboxes.follow(["d", "silent"])
    await propose(broker.redis, "d", [("v", proposal(4)), ("v", proposal(5))])
    [(_, found, size)] = await outboxes.read(1)
    assert found == [proposal(4), proposal(5)]
    assert size > 1024
    await propose(broker.redis, "d", [("v", proposal(6))])
    await outboxes.tidy()
    assert await broker.redis.xlen(keys.outbox("d", "v")) == 1  # type: ignore[attr-defined]
    assert [sent.proposals for sent in await outboxes.read(1)] == [[proposal(6)]]


async def test_a_drafter_that_is_followed_during_a_read_is_heard_at_once(broker: Broker) -> None:
    outboxes, came = Outboxes(broker.redis, broker.blocking, "v"), asyncio.Event()
    outboxes.follow(["silent"])
    await propose(broker.redis, "d", [("v", proposal(4))])
    async with asyncio.timeout(HANG_S):
        reading = asyncio.create_task(outboxes.run(lambda sent: came.set()))
        await asyncio.sleep(0)
        outboxes.follow(["silent", "d"])
        await came.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


WRONG = [("set", "x"), ("rpush", "x"), ("sadd", "x")]


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_inbox_or_outbox_that_is_no_stream_is_made_anew(valkey: Broker, wrong: tuple[str, str]) -> None:
    command, value = wrong
    inbox, outboxes = inbox_of(valkey), Outboxes(valkey.redis, valkey.blocking, "v")
    outboxes.follow(["d", "other"])
    await inbox.open()
    for key in (keys.inbox("d"), keys.outbox("d", "v")):
        await valkey.redis.delete(key)
        await valkey.redis.execute_command(command, key, value)  # type: ignore[attr-defined]
    await send(valkey.redis, [("d", commit(0))])
    assert await inbox.read(1) == []
    assert await outboxes.read(1) == []
    await send(valkey.redis, [("d", commit(1))])
    await propose(valkey.redis, "d", [("v", proposal(4))])
    assert await inbox.read(1) == [commit(1)]
    assert [sent.proposals for sent in await outboxes.read(1)] == [[proposal(4)]]


async def test_a_hint_to_a_drafter_without_an_inbox_leaves_nothing(broker: Broker) -> None:
    await send(broker.redis, [("d", commit(0))])
    assert await broker.redis.pttl(keys.inbox("d")) == -2  # type: ignore[attr-defined]
    inbox = inbox_of(broker)
    await inbox.open()
    await broker.redis.delete(keys.inbox("d"))
    await inbox.renew()
    await send(broker.redis, [("d", commit(1))])
    assert await inbox.read(1) == [commit(1)]


async def test_an_inbox_that_nobody_reads_stays_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "STREAM_MAXLEN", 50)
    await inbox_of(broker).open()
    for base in range(1000):
        await send(broker.redis, [("d", commit(base))])
    assert await broker.redis.xlen(keys.inbox("d")) < 300  # type: ignore[attr-defined]
    assert await broker.redis.pttl(keys.inbox("d")) > 0  # type: ignore[attr-defined]


async def test_a_card_lives_as_long_as_its_heartbeat(broker: Broker) -> None:
    registry = Registry(broker.redis)
    gateway = GatewayCard(id="g", host="h", pid=2, url="http://x", streams=0)
    await registry.beat(CARD)
    await registry.beat(gateway)
    assert await registry.list() == [CARD, gateway]
    await broker.redis.pipeline(transaction=False).delete(keys.card("d")).execute()  # type: ignore[attr-defined]
    assert await registry.list() == [gateway]
    await registry.leave("g")
    assert await registry.list() == []


async def test_a_card_of_another_release_is_left_out(broker: Broker) -> None:
    registry = Registry(broker.redis)
    await registry.beat(CARD)
    await broker.redis.set(keys.card("d"), b"\x63" + msgspec.msgpack.encode(["?"]), px=1000)
    assert await registry.list() == []


async def test_vocabularies_are_stored_deflated_and_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(broker.redis)
    gguf = b"GGUF" + bytes(100_000)
    keeper = VocabularyKeeper(registry, keys.vocabulary, lambda: gguf)
    assert await registry.fetch_vocabulary(keeper.digest) is None
    for _ in range(2):
        await keeper.keep()
        assert await registry.fetch_vocabulary(keeper.digest) == gguf
    assert len(await broker.redis.get(keys.vocabulary(keeper.digest)) or b"") < 1000
    monkeypatch.setattr("shared.fleet.registry.MAX_VOCABULARY_BYTES", 1000)
    with pytest.raises(ValueError, match="beyond"):
        await registry.fetch_vocabulary(keeper.digest)


async def test_texts_come_back_as_they_were(broker: Broker) -> None:
    registry = Registry(broker.redis)
    texts = [b"a", b"", b"\xff\xfe"]
    keeper = draft_keeper(registry, "d", texts)
    await keeper.keep()
    assert await registry.fetch_texts("d", keeper.digest) == texts
    assert await registry.fetch_texts("d", "f" * 32) is None
    assert await registry.fetch_texts("another", keeper.digest) is None


async def test_names_are_remembered_for_a_day_after_they_were_served(broker: Broker) -> None:
    registry = Registry(broker.redis)
    await registry.remember(VERIFIER)
    for name in (VERIFIER.model, *VERIFIER.aliases):
        last = await registry.last_served(name)
        assert last is not None
        assert last.model == VERIFIER.model
        assert last.ago_s < 5
        await broker.redis.pexpire(keys.served(name), SERVED_TTL_MS - 60_000)
        last = await registry.last_served(name)
        assert last is not None
        assert last.ago_s == pytest.approx(60, abs=5)
    assert await registry.last_served("other") is None


async def test_every_key_expires(broker: Broker) -> None:
    registry = Registry(broker.redis)
    await registry.beat(CARD)
    await registry.remember(VERIFIER)
    await inbox_of(broker).open()
    await send(broker.redis, [("d", commit(0))])
    await propose(broker.redis, "d", [("v", proposal(4))])
    await draft_keeper(registry, "d", [b"a"]).keep()
    await registry.publish(keys.vocabulary("f"), b"GGUF")
    for key in await broker.redis.keys("*"):  # type: ignore[attr-defined]
        assert await broker.redis.pttl(key) > 0, key  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [(b"not deflated", "damaged"), (zlib.compress(b"another"), "another"), (zlib.compress(b""), "another")],
)
async def test_what_is_no_such_vocabulary_is_an_error_that_says_so(
    broker: Broker, stored: bytes, complaint: str
) -> None:
    for key in (keys.vocabulary("f" * 32), keys.draft_vocabulary("d", "f" * 32)):
        await broker.redis.set(key, stored, px=1000)
    registry = Registry(broker.redis)
    for fetch in (registry.fetch_vocabulary, partial(registry.fetch_texts, "d")):
        with pytest.raises(ValueError, match=complaint):
            await fetch("f" * 32)


async def test_texts_that_are_none_are_refused(broker: Broker) -> None:
    for data in (b"", b"\xc1", msgspec.msgpack.encode(["x", 1]), msgspec.msgpack.encode({"a": b""})):
        await Registry(broker.redis).publish(keys.draft_vocabulary("d", content_digest(data)), data)
        with pytest.raises(ValueError, match="not a list of token texts"):
            await Registry(broker.redis).fetch_texts("d", content_digest(data))


async def test_a_card_under_another_s_name_is_left_out(broker: Broker) -> None:
    registry = Registry(broker.redis)
    gateway = GatewayCard(id="drafter-1", host="h", pid=2, url="http://x", streams=0)
    await registry.beat(gateway)  # what its service may not write
    await registry.beat(CARD)
    await broker.redis.set(keys.card("other"), codec.encode(CARD), px=1000)
    pipeline = broker.redis.pipeline(transaction=False)
    pipeline.sadd(keys.cards(), "other")
    pipeline.sadd(keys.cards(), b"\xff\xfe")  # type: ignore[arg-type]
    await pipeline.execute()
    assert await registry.list() == [CARD]


async def test_nothing_is_missed_between_opening_an_inbox_and_reading_it(broker: Broker) -> None:
    inbox = inbox_of(broker)
    await inbox.open()
    await send(broker.redis, [("d", commit(1))])
    assert await inbox.read(1) == [commit(1)]


async def test_a_list_of_drafters_that_somebody_flooded_is_cleared_and_hides_no_known_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.fleet.registry.MAX_DRAFTERS", 20)
    registry = Registry(broker.redis)
    await registry.beat(CARD)
    assert await registry.list() == [CARD]
    pipeline = broker.redis.pipeline(transaction=False)
    pipeline.sadd(keys.drafters(), *(f"drafter-{index}" for index in range(1000)))
    await pipeline.execute()
    assert await registry.list() == [CARD]
    newcomer = drafter_card("newcomer")
    await registry.beat(newcomer)
    assert await registry.list() == [CARD, newcomer]


@pytest.mark.parametrize("value", [b"x" * (MAX_NAME + 1), b"\xff\xfe", b""])
async def test_a_name_that_is_none_is_no_drafter(broker: Broker, value: bytes) -> None:
    pipeline = broker.redis.pipeline(transaction=False)
    pipeline.sadd(keys.drafters(), value)  # type: ignore[arg-type]
    await pipeline.execute()
    registry = Registry(broker.redis)
    await registry.beat(CARD)
    await registry.list()
    await registry.beat(CARD)
    assert await registry.list() == [CARD]


async def test_a_drafter_s_card_is_bounded(broker: Broker) -> None:
    registry = Registry(broker.redis)
    await registry.beat(msgspec.structs.replace(CARD, model="m" * MAX_DRAFTER_CARD))
    assert await registry.list() == []
    await registry.beat(CARD)
    assert await registry.list() == [CARD]
