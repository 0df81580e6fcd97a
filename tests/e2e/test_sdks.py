"""The official clients against the real stack with the real model: text, streams, tools, outputs, errors, leaving.

The model is too small to be clever, so that what is asserted is the protocol: constrained decoding makes its calls and
its JSON real.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from shared.wire import keys
from shared.wire.broker import connect
from tests.patience import HANG_S, PROCESS_S
from tests.ports import free_port
from tests.stack import Processes

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

SAY: list[Any] = [{"role": "user", "content": "Say hello to the fox."}]
OVERFLOW: list[Any] = [{"role": "user", "content": "word " * 1400}]
LONG: list[Any] = [{"role": "user", "content": "Count from one to one thousand in words."}]
FIXED: dict[str, Any] = {"temperature": 0.7, "extra_body": {"seed": 5}}
EXTRA: dict[str, Any] = {"extra_body": {"temperature": 0.7, "seed": 5}}  # Anthropic's client has no such arguments
NAME, TEXT = "default", "The answer of the tool is 42."
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "unit": {"enum": ["km", "mile"]}},
    "required": ["a", "unit"],
    "additionalProperties": False,
}


class Animal(BaseModel):
    """What the model is to fill in."""

    kind: Literal["fox", "hen"]
    legs: int
    wild: bool


@dataclass(frozen=True, slots=True)
class Service:
    """A running stack: its address, and where its Redis is."""

    url: str
    redis: str

    @property
    def openai(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    @property
    def anthropic(self) -> AsyncAnthropic:
        return AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0)

    async def idle(self, model: str) -> None:
        """Wait until no request is admitted any more: whoever left has freed its place."""
        async with asyncio.timeout(HANG_S), connect(self.redis) as broker:
            redis = cast(Any, broker.redis)
            while await redis.zcard(keys.admitted(model)):  # noqa: ASYNC110 - another process empties it
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def service(valkey_url: str, model_path: Path) -> Iterator[Service]:
    """Gateway, verifier and a lookup drafter as processes, for all tests of this file."""
    processes = Processes(valkey_url)
    url = f"http://127.0.0.1:{free_port()}"
    try:
        processes.start("gateway", "--port", url.rpartition(":")[2])
        processes.start("verifier", "--target-model", str(model_path), "--ctx", "1024", "--threads", "1")
        processes.start("drafter")
        deadline = time.monotonic() + PROCESS_S
        while True:
            try:
                urllib.request.urlopen(f"{url}/ready", timeout=2).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the stack did not become ready"
                time.sleep(0.1)
        yield Service(url, valkey_url)
    finally:
        processes.end()


# ---------------------------------------------------------------- openai


async def test_openai_chat_says_the_same_whole_and_streamed(service: Service) -> None:
    async with service.openai as client:
        whole = await client.chat.completions.create(model=NAME, messages=SAY, max_tokens=24, **FIXED)
        stream = await client.chat.completions.create(
            model=NAME, messages=SAY, max_tokens=24, stream=True, stream_options={"include_usage": True}, **FIXED
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_openai_calls_a_tool_and_goes_on_from_its_result(service: Service) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "distance", "parameters": ADD}}]
    async with service.openai as client:
        named: Any = {"type": "function", "function": {"name": "distance"}}
        for choice in ("required", named):
            first: ChatCompletion = await client.chat.completions.create(
                model=NAME,
                messages=SAY,
                tools=tools,
                tool_choice=choice,
                parallel_tool_calls=False,
                max_tokens=200,
                **FIXED,
            )
            [call] = first.choices[0].message.tool_calls or []
            assert first.choices[0].finish_reason == "tool_calls"
            assert call.type == "function"
            arguments = json.loads(call.function.arguments)
            assert set(arguments) == {"a", "unit"}
            history = [
                *SAY,
                first.choices[0].message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": TEXT},
            ]
            second = await client.chat.completions.create(
                model=NAME, messages=history, tools=tools, tool_choice="none", max_tokens=8, **FIXED
            )
            assert second.choices[0].message.content
            assert second.usage is not None
            assert second.usage.prompt_tokens_details is not None
            assert first.usage is not None
            # The call's own tokens are in the cache too: only its result and what surrounds it is new.
            cached = second.usage.prompt_tokens_details.cached_tokens or 0
            assert cached >= first.usage.prompt_tokens + first.usage.completion_tokens - 1


async def test_openai_streams_a_call_s_arguments(service: Service) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "distance", "parameters": ADD}}]
    async with service.openai as client:
        stream = await client.chat.completions.create(
            model=NAME, messages=SAY, tools=tools, tool_choice="required", max_tokens=200, stream=True, **FIXED
        )
        deltas = [call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
    by_call: dict[int, str] = {}
    for call in deltas:
        assert call.function is not None
        by_call[call.index] = by_call.get(call.index, "") + (call.function.arguments or "")
    assert by_call
    assert all(set(json.loads(arguments)) == {"a", "unit"} for arguments in by_call.values())


async def test_openai_parses_a_structured_output(service: Service) -> None:
    async with service.openai as client:
        answer = await client.chat.completions.parse(
            model=NAME, messages=SAY, response_format=Animal, max_tokens=100, **FIXED
        )
        loose = await client.chat.completions.create(
            model=NAME, messages=SAY, response_format={"type": "json_object"}, max_tokens=200, **FIXED
        )
    assert isinstance(answer.choices[0].message.parsed, Animal)
    if loose.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(loose.choices[0].message.content or ""), dict)
    else:
        assert (loose.choices[0].message.content or "").startswith("{")


async def test_openai_gets_the_target_s_log_probabilities(service: Service) -> None:
    async with service.openai as client:
        answer = await client.chat.completions.create(
            model=NAME, messages=SAY, logprobs=True, top_logprobs=3, max_tokens=12, **FIXED
        )
        legacy = await client.completions.create(model=NAME, prompt="A fox", logprobs=2, max_tokens=4, **FIXED)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    entries = logprobs.content or []
    assert b"".join(bytes(entry.bytes or []) for entry in entries).decode() == answer.choices[0].message.content
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in entries)
    given = legacy.choices[0].logprobs
    assert given is not None
    assert len(given.tokens or []) == len(given.token_logprobs or []) == 4


async def test_openai_is_told_what_is_wrong(service: Service) -> None:
    async with service.openai as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="gpt-9", messages=SAY)
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.chat.completions.create(model=NAME, messages=OVERFLOW)
        with pytest.raises(openai.BadRequestError) as schema:
            await client.chat.completions.create(
                model=NAME,
                messages=SAY,
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}},
            )
    assert missing.value.code == "model_not_found"
    assert too_long.value.code == "context_length_exceeded"
    assert "not" in schema.value.message


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_whoever_stops_reading_frees_the_place(service: Service, dialect: str) -> None:
    async with service.openai as one, service.anthropic as other:
        [served] = [model.id async for model in one.models.list()]
        stream: Any
        if dialect == "chat":
            stream = await one.chat.completions.create(model=NAME, messages=LONG, stream=True)
        elif dialect == "responses":
            stream = await one.responses.create(model=NAME, input=LONG, stream=True)
        else:
            stream = await other.messages.create(model=NAME, messages=LONG, max_tokens=900, stream=True)
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == 8:
                break
        await stream.close()
        await service.idle(served)


async def test_openai_responses(service: Service) -> None:
    tool: Any = {"type": "function", "name": "distance", "parameters": ADD, "strict": True}
    asked: dict[str, Any] = {"model": NAME, "max_output_tokens": 120, **FIXED}
    async with service.openai as client:
        whole = await client.responses.create(input="Say hello.", **{**asked, "max_output_tokens": 24})
        assert whole.output_text
        assert whole.status == "incomplete"
        short = {**asked, "extra_body": {"seed": 5, "regex": "[A-Z][a-z ]{8,20}[.]"}}
        whole = await client.responses.create(input="Say hello.", **short)
        async with client.responses.stream(input="Say hello.", **short) as stream:
            streamed = await stream.get_final_response()
        assert streamed.output_text == whole.output_text
        assert re.fullmatch("[A-Z][a-z ]{8,20}[.]", whole.output_text)
        parsed = await client.responses.parse(input="A fox.", text_format=Animal, **asked)
        assert isinstance(parsed.output_parsed, Animal)
        first = await client.responses.create(
            input="How far?", tools=[tool], tool_choice="required", parallel_tool_calls=False, **asked
        )
        [call] = [item for item in first.output if item.type == "function_call"]
        assert set(json.loads(call.arguments)) == {"a", "unit"}
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": TEXT}
        second = await client.responses.create(
            input=[result], previous_response_id=first.id, **{**asked, "max_output_tokens": 8}
        )
        assert second.output_text
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.responses.create(input=OVERFLOW, **asked)
        assert too_long.value.code == "context_length_exceeded"


# ---------------------------------------------------------------- anthropic


async def test_anthropic_says_the_same_whole_and_streamed(service: Service) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": SAY, "max_tokens": 24, **EXTRA}
    async with service.anthropic as client:
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        counted = await client.messages.count_tokens(model=NAME, messages=SAY)
    assert whole.content[0].type == "text"
    assert whole.content[0].text == text
    assert whole.stop_reason == final.stop_reason
    used = whole.usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


async def test_anthropic_calls_a_tool_and_goes_on_from_its_result(service: Service) -> None:
    asked: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 200,
        "tools": [{"name": "distance", "input_schema": ADD}],
        **EXTRA,
    }
    async with service.anthropic as client:
        async with client.messages.stream(
            messages=SAY, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **asked
        ) as stream:
            first = await stream.get_final_message()
        assert first.stop_reason == "tool_use"
        [call] = [block for block in first.content if block.type == "tool_use"]
        assert isinstance(call.input, dict)
        assert set(call.input) == {"a", "unit"}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": TEXT}
        history = [
            *SAY,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [result]},
        ]
        second = await client.messages.create(messages=history, tool_choice={"type": "none"}, **asked)
    assert any(block.type == "text" and block.text for block in second.content)


async def test_anthropic_parses_a_structured_output(service: Service) -> None:
    async with service.anthropic as client:
        answer = await client.messages.parse(
            model=NAME, messages=SAY, max_tokens=100, output_format=Animal, extra_body={"seed": 5}
        )
    assert isinstance(answer.parsed_output, Animal)


async def test_anthropic_is_told_what_is_wrong(service: Service) -> None:
    async with service.anthropic as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(model="gpt-9", messages=SAY, max_tokens=5)
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
            await client.messages.create(model=NAME, messages=OVERFLOW, max_tokens=5)


# ---------------------------------------------------------------- llm


@pytest.fixture
def llm_home(service: Service, tmp_path: Path) -> Path:
    """The settings of the `llm` command for this stack."""
    common = f'model_name: {NAME}, api_base: "{service.url}/v1", supports_tools: true, supports_schema: true'
    models = f"- {{model_id: chat, {common}}}\n- {{model_id: responses, {common}, responses: true}}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    return tmp_path


def llm(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"LLM_USER_PATH": str(home), "HOME": str(home), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-P", "-m", "llm", *arguments, "--key", "none"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROCESS_S, check=False)


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_llm_says_the_same_whole_and_streamed(llm_home: Path, model: str) -> None:
    options = ("-m", model, "-o", "temperature", "0", "-o", "max_tokens", "24")
    streamed = llm(llm_home, "Say hello to the fox.", *options)
    whole = llm(llm_home, "Say hello to the fox.", "--no-stream", *options)
    assert (streamed.returncode, whole.returncode) == (0, 0), streamed.stderr + whole.stderr
    assert streamed.stdout == whole.stdout
    assert streamed.stdout.strip()


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_llm_gets_json_of_its_schema(llm_home: Path, model: str) -> None:
    # Not in `llm`'s short form, which allows further properties: a small model goes on inventing them.
    properties = {"wild": {"type": "boolean"}, "legs": {"enum": [0, 2, 4]}}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    answer = llm(llm_home, "A fox.", "-m", model, "--schema", json.dumps(schema), "-o", "temperature", "0")
    assert answer.returncode == 0, answer.stderr
    assert {name: type(value) for name, value in json.loads(answer.stdout).items()} == {"wild": bool, "legs": int}


def test_llm_makes_a_real_tool_round_trip(llm_home: Path) -> None:
    # `llm` cannot demand a call, so the model is pushed towards the mark of one: "<" and not "response".
    towards = json.dumps({"44": 5, "7639": -100})
    answer = llm(
        llm_home,
        "Call double.",
        *("-m", "chat", "-o", "temperature", "0", "-o", "max_tokens", "80", "-o", "logit_bias", towards, "--td"),
        *("--functions", "def double(x: int) -> int:\n    return 2 * x"),
    )
    called = re.search(r"Tool call: double\({'x': (-?\d+)}\)\s+(-?\d+)", answer.stderr)
    assert called is not None, answer
    assert int(called[2]) == 2 * int(called[1])
    assert answer.stdout.strip()  # what the model said to the result


def test_llm_is_told_what_is_wrong(llm_home: Path) -> None:
    answer = llm(llm_home, "word " * 1400, "-m", "chat")
    assert answer.returncode != 0
    assert "maximum context length" in answer.stderr


def test_llm_that_is_interrupted_frees_the_place(service: Service, llm_home: Path) -> None:
    environment = {"LLM_USER_PATH": str(llm_home), "HOME": str(llm_home), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-P", "-m", "llm", LONG[0]["content"], "-m", "chat", "--key", "none"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.terminate()
    with urllib.request.urlopen(f"{service.url}/v1/models", timeout=5) as response:
        [served] = [model["id"] for model in json.load(response)["data"]]
    asyncio.run(service.idle(served))
