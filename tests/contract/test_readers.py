"""Requests whose gateway died are freed, waiting or held; those of the living are left alone."""

from services.verifier.readers import Readers
from shared.fleet.registry import Registry
from shared.wire.broker import Broker
from shared.wire.jobs import Append, Claim, JobStore
from shared.wire.messages import Chunk, Finish, GatewayCard
from shared.wire.reading import read_log
from shared.wire.scripts import ScriptOutcome
from tests.toys import job


def gateway(name: str) -> GatewayCard:
    return GatewayCard(id=name, host="h", pid=1, url="http://h", streams=0)


async def last(broker: Broker, request_id: str) -> tuple[int, Finish]:
    base, chunk = (await read_log(broker.redis, request_id))[-1]
    return base, chunk.finish


async def test_a_dead_gateways_requests_end_and_their_places_are_free(broker: Broker) -> None:
    store, registry = JobStore(broker.redis, broker.blocking, "toy"), Registry(broker.redis)
    await registry.beat(gateway("living"))
    for name, reader in [("held", "dead"), ("waiting", "dead"), ("read", "living"), ("own", "")]:
        assert await store.submit(job(name), 4, reader) is ScriptOutcome.OK
    claim = await store.claim("held", "v")
    assert isinstance(claim, Claim)
    await store.commit([Append(request_id="held", epoch=1, base=0, chunk=Chunk(tokens=(4,)))])
    readers = Readers(store, registry)
    for second in range(8):
        assert len(await store.live()) == 4
        await readers.check(float(second))
    assert await last(broker, "held") == (1, Finish.ERROR)
    assert await last(broker, "waiting") == (0, Finish.ERROR)
    late = Append(request_id="held", epoch=1, base=1, chunk=Chunk(tokens=(5,)))
    assert await store.commit([late]) == [ScriptOutcome.CANCELLED]
    assert sorted(await store.live()) == ["own", "read"]
    assert await store.submit(job("next"), 3, "living") is ScriptOutcome.OK


async def test_a_gateway_is_as_old_as_its_last_heartbeat(broker: Broker) -> None:
    registry = Registry(broker.redis)
    await registry.beat(gateway("g"))
    await broker.redis.pexpire("draftmesh:card:g", 4000)
    ages = await registry.ages_ms(["g", "never seen"])
    assert ages.keys() == {"g"}
    assert 6000 <= ages["g"] < 7000


async def test_a_request_knows_its_reader_until_it_is_gone(broker: Broker) -> None:
    store = JobStore(broker.redis, broker.blocking, "toy")
    await store.submit(job("a"), 4, "gateway-1")
    await store.submit(job("b"), 4)
    assert await store.live() == ["a", "b"]
    assert await store.readers(["a", "b", "never heard of"]) == ["gateway-1", "", ""]
    assert await store.abandon("a") is ScriptOutcome.OK
    assert await store.abandon("a") is ScriptOutcome.CANCELLED
