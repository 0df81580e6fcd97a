"""Whatever lies in Redis, every service goes on, requests are answered, and what cannot be read is cleared away."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.model_proposer import ModelProposer
from shared.model.llama.model import Model
from shared.wire import codec, keys
from shared.wire.broker import Broker
from shared.wire.messages import Chunk, Finish, Job, Sampling, ThinkingLimit, VerifierCard
from tests.hostile import wire
from tests.patience import HANG_S, PROCESS_S
from tests.service.scripted import HI, MODEL, VOCABULARY, Stack, card, speaking
from tests.service.scripted import stack as scripted
from tests.service.verifier.test_verifier import ENDLESS, reference, stack
from tests.stack import Client, drafter
from tests.toy_loaded import toy
from tests.toys import ToyTarget


def raw(broker: Broker) -> Any:
    """A client for commands that the services never use."""
    return cast(Any, broker.redis)


async def works(one: Client) -> bool:
    """Whether a request is answered as ever."""
    async with asyncio.timeout(HANG_S):
        return (await one.ask(one.job([5, 6, 7], ENDLESS, 20))).tokens == reference(one, [5, 6, 7], 20)


async def emptied(broker: Broker, stream: str) -> None:
    """Until the last job has left the stream."""
    async with asyncio.timeout(PROCESS_S):
        while await raw(broker).xlen(stream):  # noqa: ASYNC110 - it happens in Redis
            await asyncio.sleep(0.05)


async def leftovers(broker: Broker, allowed: tuple[bytes, ...] = ()) -> list[bytes]:
    """Keys that would stay for ever."""
    return [key for key in await raw(broker).keys("*") if await raw(broker).pttl(key) < 0 and key not in allowed]


async def test_entries_in_the_job_stream_are_dropped(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    async with stack(valkey_url, model_path, toy(model_path)) as one:
        stream = keys.jobs(one._model)
        for _, fields in wire.entries("r"):
            await raw(valkey).xadd(stream, fields)
        assert await works(one)
        await emptied(valkey, stream)
        assert (await raw(valkey).xpending(stream, keys.GROUP))["pending"] == 0
        assert await works(one)


ENTRY = "the entry's id"


def hashes() -> Iterator[tuple[str, dict[str, Any]]]:
    sound = {"payload": codec.encode(wire.HONEST["job"]), "epoch": 0, "committed": 0, "lease": 0, "silent": ""}
    sound |= {"state": "running", "deadline": 1 << 45, "entry": ENTRY}
    for field in sound:
        for value in ("", "x", "-1", "nan", b"\xff"):
            yield f"{field}={value!r}", {**sound, field: value}
        if field != "lease":  # one that ends late is held until the job expires
            yield f"{field} of 30 digits", {**sound, field: "9" * 30}
        yield f"without {field}", {name: value for name, value in sound.items() if name != field}
    # A sample: what decoders make of the rest is tested without a server.
    for name, blob in itertools.islice(itertools.chain(wire.wrong_fields("job"), wire.blobs()), 0, None, 9):
        if len(blob) < 10_000:
            yield f"payload: {name}", {**sound, "payload": blob}


@pytest.mark.timeout(600)
async def test_jobs_that_are_none_are_cleared_away(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    async with stack(valkey_url, model_path, toy(model_path)) as one:
        stream = keys.jobs(one._model)
        for index, (_, fields) in enumerate(hashes()):
            name = f"hostile-{index}"
            entry = await raw(valkey).xadd(stream, {"r": name})
            if fields.get("entry") == ENTRY:
                fields["entry"] = entry
            await raw(valkey).hset(keys.job(name), mapping=fields)
            await raw(valkey).pexpire(keys.job(name), 60_000)
        for name, kind in (("text", "set"), ("list", "rpush")):
            await raw(valkey).execute_command(kind, keys.job(name), "x")
            await raw(valkey).pexpire(keys.job(name), 60_000)
            await raw(valkey).xadd(stream, {"r": name})
        assert await works(one)
        await emptied(valkey, stream)
        assert await works(one)
        assert await leftovers(valkey) == []


def misfits(one: Client) -> Iterator[Job]:
    far = 1 << 30
    yield one.job([far], ENDLESS, 5)
    yield one.job([5], Sampling(seed=1, logit_bias=((far, 1.0),)), 5)
    for tokens in ((far,), (5, 64)):
        fields = {"budget": 1, "opened": True, "start": (5,), "end": (6,), "close": (6,)}
        for name in ("start", "end", "close"):
            thinking = ThinkingLimit(**{**fields, name: tokens})  # type: ignore[arg-type]
            yield Job(
                request_id=f"thinking-{name}-{len(tokens)}", model=one._model, prompt=(5,), sampling=ENDLESS,
                max_tokens=5, thinking=thinking,
            )  # fmt: skip


async def test_token_ids_beyond_the_vocabulary_end_a_request_with_an_error(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    async with stack(valkey_url, model_path, toy(model_path)) as one:
        for job in misfits(one):
            answer = await one.ask(job)
            assert answer.chunks[-1].finish is Finish.ERROR
            assert "another vocabulary" in answer.chunks[-1].detail
        assert await works(one)


@pytest.mark.parametrize("damage", ["undecodable", "missing", "short", "foreign"])
async def test_a_damaged_log_of_a_job_that_is_taken_over_ends_it(
    valkey: Broker, valkey_url: str, model_path: Path, damage: str
) -> None:
    async with stack(valkey_url, model_path) as one:
        job = one.job([5, 6, 7], ENDLESS, 20)
        await one.store.submit(job, 10)
        job_key, log_key = keys.job(job.request_id), keys.log(job.request_id)
        await raw(valkey).hset(job_key, "committed", 2)
        tokens = {"short": (5,), "foreign": (5, 1 << 30)}.get(damage, (5, 6))
        chunk = b"\xff" if damage == "undecodable" else codec.encode(Chunk(tokens=tokens))
        if damage != "missing":
            await raw(valkey).xadd(log_key, {"c": chunk}, id="2-1")
            await raw(valkey).pexpire(log_key, 60_000)
        async with stack(valkey_url, model_path, toy(model_path)) as other:
            async with asyncio.timeout(HANG_S):
                while await raw(valkey).hget(job_key, "state") == b"running":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            [(_, fields)] = await raw(valkey).xrevrange(log_key, count=1)
            assert codec.decode_chunk(fields[b"c"]).finish is Finish.ERROR
            assert await works(other)


@pytest.mark.parametrize("kind", ["lookup", "model"])
async def test_hints_and_proposals_that_are_none_are_skipped(
    valkey: Broker, valkey_url: str, model_path: Path, kind: str
) -> None:
    proposer = LookupProposer() if kind == "lookup" else ModelProposer(ToyTarget(n_ctx=600))
    async with (
        stack(valkey_url, model_path, toy(model_path)) as one,
        drafter(valkey_url, proposer, kind, "drafter-h"),
    ):
        [verifier] = [card.id for card in await one.cards(2) if isinstance(card, VerifierCard)]
        corpora = [
            wire.blobs(),
            *(wire.wrong_fields(name) for name in ("open", "commit", "close", "proposal")),
        ]
        blobs = [data for corpus in corpora for _, data in corpus if len(data) < 100_000]
        answer = asyncio.create_task(one.ask(one.job([5, 6, 7] * 8, ENDLESS, 200)))
        for stream in (keys.inbox("drafter-h"), keys.outbox("drafter-h", verifier)):
            pipeline = raw(valkey).pipeline(transaction=False)
            for _, fields in wire.entries("m"):
                pipeline.xadd(stream, {k: v for k, v in fields.items() if len(v) < 100_000} or {b"": b""})
            for blob in blobs:
                pipeline.xadd(stream, {"m": blob})
            await pipeline.execute()
        assert (await answer).tokens == reference(one, [5, 6, 7] * 8, 200)
        assert await works(one)
        assert len(await one.cards(2)) == 2
        assert await leftovers(valkey) == []


def renamed(blob: bytes, name: str) -> bytes:
    """A card with the id under which it lies, so that it is not left out for that alone."""
    try:
        tag, honest, *fields = msgspec.msgpack.decode(blob[1:])
    except (ValueError, TypeError, RecursionError):
        return blob
    if (tag, honest) != ("verifier", wire.HONEST["verifier"].id):
        return blob
    return blob[:1] + msgspec.msgpack.encode([tag, name, *fields])


async def looked_again(s: Stack) -> None:
    """Make the gateway read the registry now, as it does before it says that a model does not exist."""
    assert (await s.post(model="nobody"))[0] == 404


async def test_hostile_cards_are_left_out(valkey: Broker, valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with scripted(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        corpora = [wire.blobs(), *(wire.wrong_fields(name) for name in ("verifier", "gateway", "drafter"))]
        pipeline = raw(s.clients).pipeline(transaction=False)
        names = []
        for index, (_, blob) in enumerate(itertools.chain(*corpora)):
            names.append(name := f"verifier-hostile-{index}")
            pipeline.set(keys.card(name), renamed(blob, name), px=60_000)
            pipeline.sadd(keys.cards(), name)
        for member in (b"", b"\xff\xfe", b"x" * 100_000, b"a\r\nb"):
            pipeline.sadd(keys.cards(), member)
        await pipeline.execute()
        await s.registry.beat(card())
        await looked_again(s)
        for path in (
            "/status",  # computed from every card, as the gateway does by itself at each heartbeat
            "/v1/models",
            "/metrics",
            "/ready",
            "/slots?model=smol",
            "/props?model=smol",
            "/api/tags",
            "/api/ps",
            "/api/v0/models",
        ):
            async with s.session.get(s.url + path) as response:
                assert response.status == 200, (path, await response.text())
        # A verifier decides what models say, so a lying one may deny a request, but not end the gateway.
        assert (await s.post(model=MODEL))[0] in (200, 400, 503)
        await raw(s.clients).delete(*map(keys.card, names))
        await s.registry.beat(replace(card(), vocabulary=VOCABULARY))
        await looked_again(s)
        status, body = await s.post(model=MODEL)
        assert (status, body["choices"][0]["message"]["content"]) == (200, "Hi")


async def test_a_log_that_is_none_ends_the_request_and_no_other(
    valkey: Broker, valkey_url: str, vocabulary: bytes
) -> None:
    gate = asyncio.Event()
    claimed: list[Job] = []

    def script(job: Job) -> list[Any]:
        claimed.append(job)
        return [Chunk(tokens=(HI,)), gate]

    blobs = [data for _, data in wire.blobs() if len(data) < 10_000][:40]
    async with scripted(valkey_url, vocabulary, script, request_timeout=30.0) as s:
        for blob in blobs[:3]:
            body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
            async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
                await response.content.readuntil(b'"delta":{"content"')
                await raw(s.clients).xadd(keys.log(claimed[-1].request_id), {"c": blob}, id="2-1")
                rest = (await response.content.read()).decode()
            assert '"code":"request_lost"' in rest
            gate.set()
        for kind in ("set", "rpush"):
            gate.clear()
            async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
                await response.content.readuntil(b'"delta":{"content"')
                key = keys.log(claimed[-1].request_id)
                await raw(s.clients).delete(key)
                await raw(s.clients).execute_command(kind, key, "x")
                await raw(s.clients).pexpire(key, 10_000)
                assert '"code":"request_lost"' in (await response.content.read()).decode()
            gate.set()


async def test_chunks_that_lie_end_in_an_answer_or_an_error(valkey: Broker, valkey_url: str, vocabulary: bytes) -> None:
    chunks = []
    for _, data in wire.wrong_fields("chunk"):
        try:
            chunks.append(codec.decode_chunk(data))
        except codec.CodecError:
            continue
    assert len(chunks) > 10
    queue = iter(chunks)
    last = Chunk(tokens=(HI,), finish=Finish.STOP)
    async with scripted(valkey_url, vocabulary, lambda _: [next(queue), last]) as s:
        for _ in chunks:
            status, _body = await s.post(max_tokens=10_000)
            assert status in (200, 499, 500, 504)
            async with s.session.get(f"{s.url}/ready") as response:
                assert response.status == 200


async def test_kept_turns_and_responses_that_are_none_count_as_forgotten(
    valkey: Broker, valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with scripted(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        for index, (_, blob) in enumerate(wire.blobs()):
            call = f"call_{index}"
            await raw(s.clients).set(keys.turn(call), blob, px=10_000)
            response_id = f"resp_{index:x}"
            await raw(s.clients).set(keys.response("", response_id), blob, px=10_000)
            called = {"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            messages = [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": "", "tool_calls": [called]},
                {"role": "tool", "tool_call_id": call, "content": "y"},
            ]
            assert (await s.post(messages=messages))[0] == 200
            async with s.session.get(f"{s.url}/v1/responses/{response_id}") as response:
                assert response.status == 404
