"""Ollama's dialect as its own client and plain HTTP see it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ollama import AsyncClient, ResponseError

from services.gateway.dialects.ollama.exchange import chat_exchange, generate_exchange
from services.gateway.models.served_model import Lexicon
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Job, Speculation, TokenLogprob
from tests import golden
from tests.examples import few
from tests.service.scripted import EOG, MESSAGES, MODEL, Stack, cut, fixed, speaking, stack
from tests.splitting import answer, collected, splits, streamed, toy_lexicon
from tests.toy_format import ToyFormat

SPOKEN = '<think>Hm, 😀</think>Let me look. <call get_weather>{"city": "Paris", "days": 2}</call> <call now>{}</call>'
CALLS = [("get_weather", {"city": "Paris", "days": 2}), ("now", {})]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())


def client(s: Stack) -> AsyncClient:
    return AsyncClient(host=s.url)


def rendered(model: Model, job: Job) -> str:
    return b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()


async def lines(s: Stack, path: str, **body: Any) -> list[dict[str, Any]]:
    async with s.session.post(f"{s.url}{path}", json=body) as response:
        assert response.status == 200
        assert response.content_type == "application/x-ndjson"
        return [json.loads(line) for line in (await response.text()).splitlines()]


async def refused(s: Stack, path: str, **body: Any) -> tuple[int, str]:
    async with s.session.post(f"{s.url}{path}", json=body) as response:
        answer = await response.json()
        assert list(answer) == ["error"]
        return response.status, answer["error"]


@pytest.mark.parametrize("width", [1, 3, 100])
async def test_chat_streams_and_answers_whole_the_same(
    valkey_url: str, vocabulary: bytes, model: Model, width: int
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello 😀 world", width)) as s, client(s) as ollama:
        whole = await ollama.chat(model=MODEL, messages=MESSAGES)
        parts = [part async for part in await ollama.chat(model=f"{MODEL}:latest", messages=MESSAGES, stream=True)]
    assert whole.message.content == "".join(part.message.content or "" for part in parts) == "Hello 😀 world"
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    for last in (whole, parts[-1]):
        assert (last.model, last.done, last.done_reason) == (MODEL, True, "stop")
        assert last.eval_count == len(model.vocabulary.tokenize("Hello 😀 world")) + 1
        assert last.prompt_eval_count
        assert last.total_duration >= last.prompt_eval_duration + last.eval_duration > 0


async def test_generate_streams_and_answers_whole_the_same(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello", finish=Finish.LENGTH)) as s, client(s) as ollama:
        whole = await ollama.generate(model=MODEL, prompt="Hi", system="Be brief.")
        parts = [part async for part in await ollama.generate(model=MODEL, prompt="Hi", stream=True)]
        await ollama.generate(model=MODEL, prompt="As it is", raw=True)
        first, _, raw = s.verifier.jobs
    assert whole.response == "".join(part.response or "" for part in parts) == "Hello"
    assert whole.done_reason == parts[-1].done_reason == "length"
    assert "system\nBe brief.<|im_end|>" in rendered(model, first)
    assert rendered(model, raw) == "As it is"


@pytest.mark.usefixtures("toy")
async def test_thinking_and_calls_come_in_their_own_fields(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, SPOKEN)) as s, client(s) as ollama:
        asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "think": "low"}
        whole = await ollama.chat(**asked)
        parts = [part.message async for part in await ollama.chat(**asked, stream=True)]
    assert (whole.message.thinking, (whole.message.content or "").strip()) == ("Hm, 😀", "Let me look.")
    assert "".join(part.thinking or "" for part in parts) == "Hm, 😀"
    assert "".join(part.content or "" for part in parts).strip() == "Let me look."
    for calls in (whole.message.tool_calls or [], [call for part in parts for call in part.tool_calls or []]):
        assert [(call.function.name, call.function.arguments) for call in calls] == CALLS
    assert whole.done_reason == "stop"


@pytest.mark.usefixtures("toy")
async def test_a_call_that_was_cut_off_never_comes(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, 'Well <call now>{}</call><call get_weather>{"city": "Pa', finish=Finish.LENGTH)
    async with stack(valkey_url, vocabulary, script) as s, client(s) as ollama:
        whole = await ollama.chat(model=MODEL, messages=MESSAGES, tools=TOOLS)
    assert [call.function.name for call in whole.message.tool_calls or []] == ["now"]
    assert whole.done_reason == "length"


@pytest.mark.usefixtures("toy")
async def test_a_tool_round_trip_renders_to_what_was_said(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    scripts = iter([speaking(model, "<call now>{}</call>"), speaking(model, "Noon.")])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, client(s) as ollama:
        first = await ollama.chat(model=MODEL, messages=MESSAGES, tools=TOOLS)
        turn = [*MESSAGES, first.message, {"role": "tool", "content": "12:00", "tool_name": "now"}]
        last = await ollama.chat(model=MODEL, messages=turn, tools=TOOLS)
        text = rendered(model, s.verifier.jobs[1])
    assert last.message.content == "Noon."
    assert '"name": "now"' in text
    assert "12:00" in text


async def test_the_options_are_the_law(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    options: dict[str, Any] = {"num_predict": 7, "temperature": 0.2, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 11}
    options |= {"repeat_penalty": 1.2, "presence_penalty": 0.5, "num_ctx": 4096, "stop": ["\n"], "num_gpu": None}
    options |= {"speculative": False, "repeat_last_n": -1}
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s, client(s) as ollama:
        await ollama.chat(model=MODEL, messages=MESSAGES, options=options, keep_alive="5m")
        await ollama.chat(model=MODEL, messages=MESSAGES, options={"num_predict": -1})
        asked, plain = s.verifier.jobs
    law = asked.sampling
    assert (law.temperature, law.top_k, law.top_p, law.min_p, law.seed) == (0.2, 3, 0.5, 0.1, 11)
    assert (law.repetition_penalty, law.presence_penalty) == (1.2, 0.5)
    assert (asked.max_tokens, asked.speculation) == (7, Speculation.OFF)
    assert (plain.sampling.temperature, plain.sampling.top_k, plain.sampling.top_p) == (0.8, 40, 0.9)
    assert plain.max_tokens == 512 - len(plain.prompt)


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"a": {"type": "integer"}}}])
async def test_a_format_constrains_the_answer(valkey_url: str, vocabulary: bytes, model: Model, form: Any) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "{}")) as s, client(s) as ollama:
        await ollama.chat(model=MODEL, messages=MESSAGES, format=form)
        assert '"type": "object"' in s.verifier.jobs[0].grammar


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/api/chat", "images", {"messages": [{"role": "user", "content": "?", "images": ["aGk="]}]}),
        ("/api/generate", "images", {"prompt": "?", "images": ["aGk="]}),
        ("/api/generate", "suffix", {"prompt": "a", "suffix": "b"}),
        ("/api/generate", "template", {"prompt": "a", "template": "{{ .Prompt }}"}),
        ("/api/generate", "context", {"prompt": "a", "context": [1]}),
        ("/api/chat", "options.temperature", {"messages": MESSAGES, "options": {"temperature": -1}}),
        ("/api/chat", "mirostat", {"messages": MESSAGES, "options": {"mirostat": 2}}),
        ("/api/chat", "repeat_last_n", {"messages": MESSAGES, "options": {"repeat_last_n": 64, "repeat_penalty": 1.1}}),
        ("/api/chat", "'speculative' must be", {"messages": MESSAGES, "options": {"speculative": 3}}),
        ("/api/chat", "think", {"messages": MESSAGES, "think": "sometimes"}),
        ("/api/chat", "tools", {"messages": MESSAGES, "tools": [{"type": "function"}]}),
        ("/api/chat", "messages[0].role", {"messages": [{"role": "narrator", "content": "x"}]}),
        ("/api/chat", "top_logprobs", {"messages": MESSAGES, "top_logprobs": 2}),
        ("/api/chat", "prompt is too long", {"messages": [{"role": "user", "content": "word " * 600}]}),
        ("/api/embed", "embeddings", {"input": "x"}),
        ("/api/create", "verifiers", {"model": "x"}),
        ("/api/show", "model", {}),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    valkey_url: str, vocabulary: bytes, path: str, field: str, body: dict[str, Any]
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        status, sentence = await refused(s, path, **body)
    assert status == 400
    assert field in sentence


async def test_an_unknown_model_is_a_404(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s, client(s) as ollama:
        for ask in (ollama.chat(model="other", messages=MESSAGES), ollama.show("other"), ollama.pull("other")):
            with pytest.raises(ResponseError, match=f"'other' does not exist. Served: {MODEL}") as error:
                await ask
            assert error.value.status_code == 404


async def test_an_empty_request_loads_the_model(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s, client(s) as ollama:
        loaded = await ollama.generate(model=MODEL, prompt="", keep_alive="1h")
        [streamed] = await lines(s, "/api/chat", model=MODEL, messages=[])
        [unloaded] = await lines(s, "/api/generate", model=MODEL, keep_alive=0)
        assert (loaded.response, loaded.done, loaded.done_reason) == ("", True, "load")
        assert (streamed["message"], streamed["done_reason"]) == ({"role": "assistant", "content": ""}, "load")
        assert unloaded["done_reason"] == "unload"
        assert not s.verifier.jobs


async def test_silence_is_filled_with_objects_that_say_nothing(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    ready = asyncio.Event()
    script = fixed(ready, *cut([*model.vocabulary.tokenize("Hi"), EOG], 2))
    async with stack(valkey_url, vocabulary, script, heartbeat_s=0.05) as s, client(s) as ollama:
        seen = []
        async for part in await ollama.chat(model=MODEL, messages=MESSAGES, stream=True):
            seen.append(part)
            if len(seen) == 2:
                ready.set()
    assert [part.message.content for part in seen[:2]] == ["", ""]
    assert "".join(part.message.content or "" for part in seen) == "Hi"
    assert [part.done for part in seen].count(True) == 1


async def test_a_failure_in_a_stream_is_a_line_of_its_own(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    failed = Chunk(tokens=(), finish=Finish.ERROR, detail="The target is gone.")
    script = fixed(Chunk(tokens=tuple(model.vocabulary.tokenize("Hi"))), failed)
    async with stack(valkey_url, vocabulary, script) as s, client(s) as ollama:
        *_, last = await lines(s, "/api/chat", model=MODEL, messages=MESSAGES)
        assert last == {"error": "The target is gone."}
        with pytest.raises(ResponseError, match="The target is gone"):
            await ollama.chat(model=MODEL, messages=MESSAGES)


async def test_a_client_that_leaves_ends_its_job(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    endless = fixed(*cut(model.vocabulary.tokenize("Hi there"), 1, Finish.NONE), asyncio.Event())
    async with stack(valkey_url, vocabulary, endless) as s:
        response = await s.session.post(f"{s.url}/api/chat", json={"model": MODEL, "messages": MESSAGES})
        await response.content.readline()
        response.close()
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


async def test_logprobs_come_on_request(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hi"))
    chosen = tuple(TokenLogprob(-0.5, ((token, -0.5), (5, float("-inf")))) for token in tokens)
    async with (
        stack(valkey_url, vocabulary, fixed(Chunk(tokens=tokens, logprobs=chosen, finish=Finish.LENGTH))) as s,
        client(s) as ollama,
    ):
        whole = await ollama.chat(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2)
        first, _ = await lines(s, "/api/chat", model=MODEL, messages=MESSAGES, logprobs=True)
    [entry] = whole.logprobs or []
    assert (entry.token, entry.logprob, len(entry.top_logprobs or [])) == ("Hi", -0.5, 2)
    assert first["logprobs"][0]["token"] == "Hi"


@pytest.mark.usefixtures("toy")
async def test_what_is_served_is_listed_and_shown(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s, client(s) as ollama:
        [listed] = (await ollama.list()).models
        [running] = (await ollama.ps()).models
        shown = await ollama.show(f"{MODEL}:latest")
        pulled = await ollama.pull(MODEL)
        async with s.session.get(f"{s.url}/api/version") as response:
            version = (await response.json())["version"]
    assert listed.model == running.model == MODEL
    assert listed.digest == running.digest
    assert running.context_length == 512
    assert listed.details is not None
    assert (listed.details.family, listed.details.parameter_size) == ("llama", "135M")
    assert listed.details.quantization_level == "Q4_1"
    assert (shown.modelinfo or {})["llama.context_length"] == 512
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.template
    assert pulled.status == "success"
    assert tuple(map(int, version.split("."))) >= (0, 13, 4)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.usefixtures("toy")
async def test_the_lines_of_a_stream(valkey_url: str, vocabulary: bytes, model: Model, path: str) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS} if path == "/api/chat" else {"prompt": "Hi"}
    spoken = SPOKEN if path == "/api/chat" else "<think>Hm</think>Hello 😀 world"
    async with stack(valkey_url, vocabulary, speaking(model, spoken, 4)) as s:
        text = await s.transcript(path, model=MODEL, options={"seed": 5}, **body)
    golden.check(path.removeprefix("/").replace("/", "-").replace("api", "ollama"), text)


@pytest.mark.parametrize("call", [chat_exchange, generate_exchange])
@settings(max_examples=few(40))
@given(data=st.data())
def test_any_split_into_commits_says_the_same(model: Model, call: Callable[[bytes], Any], data: st.DataObject) -> None:
    lexicon: Lexicon = toy_lexicon(model)
    asked = call(json.dumps({"messages": MESSAGES, "prompt": "Hi", "options": {"seed": 1}}).encode())
    whole = answer(lexicon, SPOKEN)

    def said(stream: str) -> tuple[str, str, list[Any]]:
        objects = [json.loads(line) for line in stream.splitlines()]
        messages = [one["message"] if "message" in one else {**one, "content": one["response"]} for one in objects]
        calls = [made["function"] for one in messages for made in one.get("tool_calls", [])]
        return (
            "".join(one["content"] for one in messages),
            "".join(one.get("thinking", "") for one in messages),
            calls,
        )

    split = data.draw(splits(whole))
    text, thinking, calls = said(streamed(asked, lexicon, split))
    assert (text, thinking, calls) == said(streamed(asked, lexicon, [whole]))
    assert (text, thinking, calls) == said(json.dumps(collected(asked, lexicon, split)))
    assert thinking == "Hm, 😀"
