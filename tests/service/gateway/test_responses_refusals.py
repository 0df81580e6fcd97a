"""What Responses requests are refused, what is left out of them with a warning, and what Codex sends."""

import asyncio
import json
from typing import Any

import openai
import pytest

from shared.model.llama.model import Model
from tests.service.gateway.responses_events import events
from tests.service.gateway.test_responses import TOOL
from tests.service.scripted import EOG, MODEL, cut, fixed, speaking, stack
from tests.toy_format import ToyFormat

FORMAT = {"type": "json_schema", "name": "x"}
IMAGE = {"type": "input_image", "image_url": "data:"}
USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": None}, "input", "is required"),
        ({"input": []}, "input", "must not be an empty list"),
        ({"input": 5}, "input", "list"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role", "'user'"),
        ({"input": [USER, {"role": "user"}]}, "input[1].content", "is required"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content", "'input_image'"),
        ({"input": [{"type": "function_call_output", "output": ""}]}, "input[0].call_id", "is required"),
        ({"input": [{"type": "function_call", "call_id": "1"}]}, "input[0].name", "is required"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "is required"),
        ({"tools": ["weather"]}, "tools[0]", "object"),
        ({"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name", "string"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]},
            "tools[0].tools[0].name",
            "",
        ),
        ({"tools": [TOOL, TOOL]}, "tools[1]", "'weather'"),
        ({"tool_choice": "required"}, "tool_choice", "no function"),
        ({"tool_choice": "sometimes"}, "tool_choice", "must be"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "'web_search'"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "wether"}}, "tool_choice", "'wether'"),
        ({"text": {"format": FORMAT}}, "text.format.schema", "is required"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", ""),
        ({"text": {"format": {"type": "json_object"}}, "regex": "a"}, "regex", "together"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", ""),
        ({"top_logprobs": 21}, "top_logprobs", "20"),
        ({"max_output_tokens": -2}, "max_output_tokens", "greater than"),
        (
            {"tools": [{**TOOL, "parameters": {"type": "object"}}]},
            "tools[0]",
            "'additionalProperties' to be false",
        ),
        (
            {"text": {"format": {**FORMAT, "strict": True, "schema": {}}}},
            "text.format.schema",
            "'additionalProperties' to be false",
        ),
        ({"background": True, "store": False}, "background", "needs 'store'"),
        ({"conversation": "conv_1"}, "conversation", "OpenAI"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "OpenAI"),
        ({"metadata": {"a": 1}}, "metadata.a", "string"),
    ],
)
async def test_refusals_name_the_field(
    valkey_url: str, vocabulary: bytes, fields: dict[str, Any], param: str, words: str
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        body = {"input": "Hi", "stream": True, **fields}
        async with s.session.post(f"{s.url}/v1/responses", json=body) as response:
            refusal = (await response.json())["error"]
            assert response.status == 400
        assert s.verifier.jobs == []
    assert refusal["param"] == param
    assert words in refusal["message"]
    assert "\n" not in refusal["message"]
    assert refusal["type"] == "invalid_request_error"


async def test_an_input_that_is_too_long_says_so(valkey_url: str, vocabulary: bytes) -> None:
    """Counting it is no failure: that is how a client learns how long it is."""
    async with stack(valkey_url, vocabulary) as s, s.openai as client:
        for truncation in ("auto", "disabled"):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(
                    model=MODEL,
                    input="word " * 600,
                    truncation=truncation,
                    stream=True,
                )
            assert caught.value.code == "context_length_exceeded"
        assert (await client.responses.input_tokens.count(model=MODEL, input="word " * 600)).input_tokens > 600


async def test_an_empty_input_is_a_request(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Codex warms local models up with it."""
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s, s.openai as client:
        warm = await client.responses.create(model=MODEL, input="", max_output_tokens=1)
        assert s.verifier.jobs[0].max_tokens == 1
    assert warm.status == "completed"


def codex_request(**fields: Any) -> dict[str, Any]:
    """The shape of what Codex sends."""
    inner = [
        {
            "type": "function",
            "name": "open",
            "description": "Opens.",
            "strict": False,
            "parameters": TOOL["parameters"],
        },
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
    ]
    texts = ["You are careful.", "The sandbox is off.", "<cwd>/tmp</cwd>", "Weather?"]
    roles = ["developer", "developer", "user", "user"]
    return {
        "model": MODEL,
        "input": [
            {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
            for role, text in zip(roles, texts, strict=True)
        ],
        "tools": [
            TOOL,
            {"type": "namespace", "name": "files", "description": "Files.", "tools": inner},
            {"type": "web_search", "external_web_access": False},
            {
                "type": "custom",
                "name": "apply",
                "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
            },
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0f9a",
        "client_metadata": {"origin": "cli"},
        **fields,
    }


async def test_a_request_of_codex_s_shape_is_answered(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())
    patch = '*** Begin\n\t"é"\n'
    texts = iter(
        [
            '<think>Hm.</think><call files__open>{"city": "a"}</call>'
            f"<call apply>{json.dumps({'input': patch}, ensure_ascii=False)}</call>",
            "Done.",
        ]
    )
    asked = codex_request()
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts), 3)(job)) as s:
        async with s.session.post(f"{s.url}/v1/responses", json=asked) as response:
            assert response.status == 200
            warning = response.headers["x-draftmesh-warning"]
            told = events(await response.text())
        first = told[-1]["response"]
        reasoning, call, custom = first["output"]
        asked["input"] += [
            reasoning,
            {name: call[name] for name in ("type", "name", "namespace", "arguments", "call_id")},
            {name: custom[name] for name in ("type", "name", "input", "call_id")},
            {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "applied"},
            {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": [{"type": "input_text", "text": "ok"}],
            },
        ]
        async with s.session.post(f"{s.url}/v1/responses", json=asked) as response:
            second = events(await response.text())[-1]["response"]
        prompt = b"".join(model.vocabulary.piece(token, special=True) for token in s.verifier.jobs[1].prompt).decode()
    assert warning == "tools of type 'web_search' are ignored"
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "apply", patch)
    own = [event for event in told if event["type"].startswith("response.custom_tool_call_input.")]
    assert "".join(event["delta"] for event in own[:-1]) == own[-1]["input"] == patch
    assert {event["item_id"] for event in own} == {custom["id"]}
    # The model reads its call, and what came of it, as those of a function with one string.
    assert json.dumps({"input": patch}, ensure_ascii=False) in prompt
    assert "applied" in prompt
    # The model knows one flat list; the client gets its own names back.
    assert (call["name"], call["namespace"]) == ("open", "files")
    assert "files__open" in prompt
    assert [tool["type"] for tool in first["tools"]] == ["function", "namespace", "custom"]
    assert reasoning["encrypted_content"]
    assert second["output"][0]["content"][0]["text"] == "Done."


async def test_warnings_cannot_break_a_header(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    kinds = ["a\r\nSet-Cookie: x=1", "漢字", "x" * 5000]
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        body = {"input": "Hi", "tools": [{"type": kind} for kind in kinds]}
        async with s.session.post(f"{s.url}/v1/responses", json=body) as response:
            assert response.status == 200
            assert "Set-Cookie" not in response.headers
            assert len(response.headers["x-draftmesh-warning"]) <= 1000
        async with s.session.post(f"{s.url}/v1/responses", json={"input": "Hi"}) as response:
            assert "x-draftmesh-warning" not in response.headers


async def test_a_long_silence_keeps_a_short_idle_timer_awake(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """A client like Codex counts only events; here its timer is two hundred times as short as the silence."""
    gate = asyncio.Event()
    script = fixed(gate, *cut([*model.vocabulary.tokenize("Hi"), EOG], 1))
    async with (
        stack(valkey_url, vocabulary, script, heartbeat_s=0.005) as s,
        s.session.post(f"{s.url}/v1/responses", json=codex_request(tools=[])) as response,
    ):
        seen = 0
        while line := await response.content.readline():
            seen += line.startswith(b"event: ")
            if seen == 40:
                gate.set()
            if line.startswith(b"data: "):
                last = json.loads(line.removeprefix(b"data: "))
    assert last["type"] == "response.completed"
