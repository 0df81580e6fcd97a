"""Messages as any client sends them become text, calls with arguments as JSON text, and bare ids."""

import json
from typing import Any

import pytest

from services.gateway.dialects.chat.request import parse_chat
from services.gateway.errors import ApiError
from services.gateway.requests.types import Conversation

USER = {"role": "user", "content": "hi"}


def conversation(*messages: Any, **fields: Any) -> Conversation:
    [prompt] = parse_chat(json.dumps({"messages": messages, **fields}).encode()).generation().prompts
    assert isinstance(prompt, Conversation)
    return prompt


def message(given: Any) -> dict[str, Any]:
    [only] = conversation(given).messages
    return dict(only)


def refusal(*messages: Any, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        conversation(*messages, **fields)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a", {"type": "output_text", "text": "b"}], "a\nb"),
        ([{"type": "refusal", "refusal": "No."}], "No."),
    ],
)
def test_content_in_any_form_is_text(content: Any, text: str) -> None:
    for role in ("system", "developer", "user", "assistant"):
        assert message({"role": role, "content": content}) == {"role": role, "content": text}


def test_a_message_may_lack_its_content() -> None:
    assert message({"role": "assistant"})["content"] == ""
    assert message({"role": "assistant", "content": None, "refusal": "No."})["content"] == "No."


def test_system_messages_stay_where_they_are() -> None:
    roles = ["system", "user", "system", "assistant", "developer", "user"]
    prompt = conversation(*({"role": role, "content": role} for role in roles))
    assert [one["role"] for one in prompt.messages] == roles


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ({"ä": [1]}, '{"ä": [1]}'),
        ("", "{}"),
        (None, "{}"),
        ({}, "{}"),
        ('{"a": ', '{"a": '),
    ],
)
def test_arguments_in_any_form_are_json_text(arguments: Any, text: str) -> None:
    call = {"id": "call_0af3", "type": "function", "function": {"name": "f", "arguments": arguments}}
    given = {"role": "assistant", "content": None, "tool_calls": [call]}
    function = {"name": "f", "arguments": text}
    assert message(given)["tool_calls"] == [{"id": "0af3", "type": "function", "function": function}]


@pytest.mark.parametrize(("given", "bare"), [("call_0af3", "0af3"), ("toolu_0af3", "0af3"), ("call_Xyz", "call_Xyz")])
def test_results_name_their_call_as_the_call_itself_does(given: str, bare: str) -> None:
    result = message({"role": "tool", "tool_call_id": given, "content": [{"type": "text", "text": "3"}]})
    assert result == {"role": "tool", "tool_call_id": bare, "content": "3"}


def test_the_function_role_is_a_tool_s() -> None:
    prompt = conversation(
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "3"},
    )
    [call] = list(prompt.messages[1]["tool_calls"])  # type: ignore[call-overload]
    assert call["function"] == {"name": "f", "arguments": "{}"}
    assert prompt.messages[2] == {"role": "tool", "name": "f", "tool_call_id": call["id"], "content": "3"}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_earlier_thinking_is_kept(name: str) -> None:
    assert message({"role": "assistant", "content": "a", name: "Hm."})["reasoning_content"] == "Hm."


def test_an_assistant_s_last_message_is_continued_only_when_asked() -> None:
    start = {"role": "assistant", "content": "Sure, "}
    assert not conversation(USER, start).continues
    assert conversation(USER, {**start, "prefix": True}).continues
    assert conversation(USER, start, continue_final_message=True, add_generation_prompt=False).continues


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        ([USER], {"continue_final_message": True}, "continue_final_message"),
        ([{**USER, "prefix": True}], {}, "messages"),
        ([USER], {"add_generation_prompt": False}, "add_generation_prompt"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}], "prefix": True}], {}, "messages"),
    ],
)
def test_what_cannot_be_continued_is_refused(messages: list[Any], fields: dict[str, Any], param: str) -> None:
    error = refusal(*messages, **fields)
    assert error.param == param
    assert param in error.message


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_what_is_not_text_is_refused_by_name(kind: str) -> None:
    error = refusal(USER, {"role": "user", "content": [{"type": kind, kind: {}}]})
    assert error.param == "messages[1].content"
    assert kind in error.message
    assert "text" in error.message


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "messages[0].content"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "messages[0].content"),
        ({"role": "user", "content": [3]}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"content": "a"}, "messages[0].role"),
        ("hello", "messages[0]"),
    ],
)
def test_a_message_at_fault_is_named(given: Any, param: str) -> None:
    error = refusal(given)
    assert error.param == param
    assert "\n" not in error.message
