"""Tools and a model whose template knows none: explained in the prompt, held to by a grammar, read from the text."""

import json

from shared.model.llama.model import Model
from tests.service.scripted import speaking, stack

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo 😀"}}\n</tool_call>'


async def test_a_model_that_knows_no_tools_calls_them(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, f"I look.\n{_CALL}", 3)) as s:
        status, body = await s.post(messages=[{"role": "user", "content": "Hi"}], tools=_TOOLS)
        assert status == 200
        [choice] = body["choices"]
        [call] = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == "I look."
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo 😀"}
        [job] = s.verifier.jobs
        prompt = b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()
        assert "<tools>" in prompt
        assert '"weather"' in prompt
        assert "%json" in job.grammar


async def test_the_next_turn_tells_the_call_and_its_result(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "Rain."},
    ]
    async with stack(valkey_url, vocabulary, speaking(model, "Rain.", 3)) as s:
        status, body = await s.post(messages=messages, tools=_TOOLS)
        assert status == 200
        assert body["choices"][0]["message"]["content"] == "Rain."
        [job] = s.verifier.jobs
        prompt = b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()
        assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in prompt
        assert "<tool_response>\nRain.\n</tool_response>" in prompt
