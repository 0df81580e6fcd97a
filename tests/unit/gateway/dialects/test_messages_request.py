"""Messages requests: what they mean in no dialect, and what is refused by the field's name."""

import json
from typing import Any

import pytest

from services.gateway.dialects.messages.request import MessagesPrompt, MessagesRequest, parse_messages
from services.gateway.errors import ApiError
from services.gateway.requests.types import Conversation, GenerationRequest, Output, Reasoning, Tool, ToolChoice
from shared.wire.messages import Speculation

ASK = {"role": "user", "content": "Hi"}
WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}
HEXADECIMAL = "0123456789abcdef01234567"


def generation(**fields: Any) -> GenerationRequest:
    body = {"model": "smol", "max_tokens": 100, "messages": [ASK], **fields}
    return parse_messages(json.dumps(body).encode(), MessagesRequest).generation()


def conversation(*messages: dict[str, Any], **fields: Any) -> Conversation:
    [prompt] = generation(messages=list(messages), **fields).prompts
    assert isinstance(prompt, Conversation)
    return prompt


def rendered(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [dict(message) for message in conversation(*messages, **fields).messages]


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}


def use(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def test_system_and_contents_may_be_text_or_blocks() -> None:
    expected = [{"role": "system", "content": "a\nb"}, {"role": "user", "content": "c\nd"}]
    assert rendered(said("user", "c", "d"), system=[text("a"), text("b")]) == expected
    assert rendered({"role": "user", "content": "c\nd"}, system="a\nb") == expected
    assert rendered(ASK) == [{"role": "user", "content": "Hi"}]


def test_system_messages_stay_where_they_are() -> None:
    messages = rendered(ASK, {"role": "system", "content": "Be brief."}, said("assistant", "Yes?"), ASK)
    assert [message["role"] for message in messages] == ["user", "system", "assistant", "user"]


def test_neighbours_of_one_role_are_one_turn() -> None:
    assert rendered(ASK, said("user", "there")) == [{"role": "user", "content": "Hi\nthere"}]


def test_results_come_before_what_the_user_says_beside_them() -> None:
    one, other = f"toolu_{HEXADECIMAL}", "toolu_01A09q90qw90lq917835lq9"
    messages = rendered(
        ASK,
        said("assistant", "Let me ", "see.", use(one, city="Zürich"), use(other)),
        said("user", "And now?", result(one, "sunny"), result(other, [text("wet"), text("cold")], is_error=True)),
    )
    function = {"name": "weather", "arguments": '{"city": "Zürich"}'}
    assert messages[1] == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": HEXADECIMAL, "type": "function", "function": function},
            {"id": other, "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        ],
    }
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": HEXADECIMAL, "name": "weather", "content": "sunny"},
        {"role": "tool", "tool_call_id": other, "name": "weather", "content": "Error: wet\ncold"},
        {"role": "user", "content": "And now?"},
    ]


@pytest.mark.parametrize("content", [None, "", []])
def test_a_result_may_be_empty(content: object) -> None:
    messages = rendered(said("user", result("of another session", content)))
    assert messages == [{"role": "tool", "tool_call_id": "of another session", "content": ""}]


def test_a_found_tool_is_a_result_by_its_name() -> None:
    [message] = rendered(said("user", result("x", [{"type": "tool_reference", "tool_name": "weather"}])))
    assert message["content"] == "weather"


def test_thinking_is_kept_and_what_cannot_be_read_is_not() -> None:
    thinking = {"type": "thinking", "thinking": "Greet.", "signature": "any"}
    messages = rendered(ASK, said("assistant", thinking, {"type": "redacted_thinking", "data": "?"}, "Hello."), ASK)
    assert messages[1] == {"role": "assistant", "content": "Hello.", "reasoning_content": "Greet."}


def test_a_last_message_of_the_assistant_s_is_gone_on_from() -> None:
    prompt = conversation(ASK, said("assistant", "{"))
    assert (prompt.continues, prompt.messages[-1]["content"]) == (True, "{")
    empty: list[Any] = ["", []]
    for nothing in empty:
        prompt = conversation(ASK, {"role": "assistant", "content": nothing})
        assert (prompt.continues, len(prompt.messages)) == (False, 1)
    assert not conversation(ASK, said("assistant", "Hello."), ASK).continues


def test_what_changes_with_every_request_is_no_part_of_the_prompt() -> None:
    def turn(count: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
        countdown = f"<total_tokens>{count} tokens left</total_tokens>"
        return rendered(
            said("user", "Hi", f"<system-reminder>\n{countdown}\n</system-reminder>"),
            said("assistant", use("a")),
            said("user", result("a", [text("wet"), text(countdown)])),
            {"role": "system", "content": countdown},
            *more,
            system=[text(f"x-anthropic-billing-header: cch={count};"), text("Be brief."), text(countdown)],
        )

    first, second = turn(100), turn(90, said("assistant", "It is wet."), ASK)
    assert second[: len(first)] == first
    assert [message["content"] for message in first] == ["Be brief.", "Hi", "", "wet"]


def test_a_countdown_behind_the_assistant_s_text_makes_no_beginning_of_it() -> None:
    countdown = {"role": "system", "content": "<total_tokens>7 tokens left</total_tokens>"}
    assert not conversation(ASK, said("assistant", "Hello."), countdown).continues
    assert conversation(ASK, {**countdown, "role": "assistant"}).messages[-1]["role"] == "assistant"


@pytest.mark.parametrize(
    ("field", "choice"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice(mode="required", parallel=False)),
        ({"type": "tool", "name": "weather"}, ToolChoice(mode="required", names=("weather",))),
        ({"type": "none"}, ToolChoice(mode="none")),
    ],
)
def test_every_tool_choice(field: object, choice: ToolChoice) -> None:
    request = generation(tools=[WEATHER], tool_choice=field)
    assert request.tools == (Tool(name="weather", description="Tells it.", parameters={"type": "object"}),)
    assert request.tool_choice == choice


def test_tools_of_anthropic_s_servers_are_left_out_with_a_warning() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    servers = [{"type": "url", "url": "https://example.com", "name": "x"}]
    body = {"max_tokens": 9, "messages": [ASK], "tools": [WEATHER, search, {**WEATHER, "type": "custom", "name": "b"}]}
    request = parse_messages(json.dumps({**body, "mcp_servers": servers}).encode(), MessagesRequest)
    assert [tool.name for tool in request.generation().tools] == ["weather", "b"]
    assert request.warnings == [
        "tool 'web_search' is not supported here and was ignored",
        "'mcp_servers' is not supported here and was ignored",
    ]


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({}, Reasoning(enabled=False)),
        ({"thinking": {"type": "disabled"}}, Reasoning(enabled=False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Reasoning(enabled=True, budget=2048)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, Reasoning(effort="high")),
    ],
)
def test_thinking_and_effort(fields: dict[str, Any], reasoning: Reasoning) -> None:
    assert generation(**fields).reasoning == reasoning


@pytest.mark.parametrize("field", ["output_config.format", "output_format"])
def test_a_schema_for_the_answer(field: str) -> None:
    form: dict[str, Any] = {"type": "json_schema", "schema": {"type": "array"}}
    fields = {"output_format": form} if field == "output_format" else {"output_config": {"format": form}}
    assert generation(**fields).output == Output(kind="json", source={"type": "array"}, param=f"{field}.schema")


def test_our_own_ways_to_constrain_the_answer() -> None:
    assert generation(regex="[0-9]+").output == Output(kind="regex", source="[0-9]+", param="regex")


def test_the_law_and_its_limits() -> None:
    request = generation(stop_sequences=["END"], top_k=5, temperature=0.5, seed=7, speculative=False, stop="###")
    assert request.stops == ("END", "###")
    assert (request.sampling.top_k, request.sampling.temperature, request.sampling.seed) == (5, 0.5, 7)
    assert (request.max_tokens, request.speculation) == (100, Speculation.OFF)
    assert generation().sampling.temperature == 1.0


def test_no_token_is_asked_for_and_a_count_needs_no_limit() -> None:
    assert generation(max_tokens=0).max_tokens == 0
    counted = parse_messages(json.dumps({"messages": [ASK]}).encode(), MessagesPrompt)
    assert counted.generation().max_tokens is None


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"content": "The law."}, "The law."),
        ({"content": "The law.", "title": "Law", "context": "Of 1900.", "citations": {"enabled": True}},
         "Law\nOf 1900.\nThe law."),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
    ],
)  # fmt: skip
def test_a_document_of_text_is_its_text(block: dict[str, Any], text: str) -> None:
    content = block.pop("content")
    assert rendered(said("user", document(content, **block), "Sum it up."))[0]["content"] == f"{text}\nSum it up."


def test_documents_and_search_results_are_read_in_the_result_of_a_call_too() -> None:
    found = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "A",
        "content": [{"type": "text", "text": "b"}],
    }
    turns = rendered(ASK, said("assistant", use("a")), said("user", result("a", [document("The law."), found])))
    assert turns[-1]["content"] == "The law.\nA\nb"


def test_what_only_anthropic_s_service_knows_is_ignored() -> None:
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    others = {"metadata": {"user_id": "{}"}, "service_tier": "auto", "context_management": edits, "betas": ["x"]}
    assert rendered(ASK, **others) == rendered(ASK)


def test_anthropic_s_models_stand_for_the_default_one() -> None:
    assert generation(model="claude-haiku-4-5").or_default
    assert not generation(model="qwen").or_default


def document(content: Any, **fields: Any) -> dict[str, Any]:
    text = {"type": "text", "media_type": "text/plain", "data": content}
    return {
        "type": "document",
        "source": text if isinstance(content, str) else {"type": "content", "content": content},
        **fields,
    }


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
SCHEMA = {"type": "json_schema", "schema": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0]", "'role'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "required"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content[0]", "'type'"),
        ({"messages": [said("user", "See:", IMAGE)]}, "messages[0].content[1]", "'image' are not supported"),
        ({"messages": [said("user", {"type": "document"})]}, "messages[0].content[0]", "of type 'text'"),
        ({"messages": [said("user", PDF)]}, "messages[0].content[0]", "read text only"),
        ({"messages": [said("user", document([IMAGE]))]}, "messages[0].content[0]", "may hold only text"),
        ({"messages": [said("user", document(5))]}, "messages[0].content[0]", "no text"),
        ({"messages": [said("user", {"type": "search_result"})]}, "messages[0].content[0]", "no text"),
        (
            {"messages": [said("user", result("a", [IMAGE]))]},
            "messages[0].content[0].content[0]",
            "'image' are not supported",
        ),
        ({"messages": [said("user", use("a"))]}, "messages[0].content[0]", "only 'text', 'tool_result'"),
        ({"messages": [said("assistant", result("a", ""))]}, "messages[0].content[0]", "'tool_result' are not"),
        ({"messages": [said("assistant", {"type": "tool_use"})]}, "messages[0].content[0].id", "required"),
        ({"messages": [ASK, said("assistant", use("a"))]}, "messages", "results of the calls are missing"),
        ({"messages": [ASK, said("assistant", {"type": "thinking", "thinking": "x"})]}, "messages", "thinking alone"),
        ({"system": [IMAGE]}, "system[0]", "'image' are not supported"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema", "required"),
        ({"tools": [{"type": "custom", "input_schema": {}}]}, "tools[0].name", "required"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name", "two tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "needs 'tools'"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name", "required"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "b"}}, "tool_choice.name", "no tool 'b'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens", "greater"),
        ({"thinking": {"type": "maybe"}}, "thinking.type", "'adaptive'"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort", "'max'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema", "required"),
        ({"output_config": {"format": SCHEMA}, "output_format": SCHEMA}, "output_format.schema", "together"),
        ({"output_format": SCHEMA, "lark": "start: /a/"}, "lark", "together"),
        ({"thread": {"type": "create"}}, "thread", "send all messages"),
        ({"mirostat": 2}, "mirostat", "not supported"),
        ({"stop_sequences": [1]}, "stop_sequences", "list of strings"),
        ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0"),
        ({"max_tokens": None}, "max_tokens", "required"),
        ({"tools": [{**WEATHER, "strict": True}]}, "tools[0]", "'additionalProperties' to be false"),
        ({"temperature": "hot"}, "temperature", "number"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        generation(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
