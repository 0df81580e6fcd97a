"""A Responses conversation as messages, and its tools as one list."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from services.gateway.dialects.responses.custom_tools import InputText
from services.gateway.dialects.responses.items import Item, messages, seal
from services.gateway.dialects.responses.tools import DeclaredTool, tool_choice, toolbox
from services.gateway.errors import ApiError
from services.gateway.requests.types import ToolChoice

ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "files", "tools": [{**TOOL, "name": "open"}, TOOL, {"type": "mcp"}]}


def said(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(message) for message in messages(ITEMS.validate_python(list(items)))]


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **more}


def call(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": "{}", **more}


def called(number: int, name: str = "look") -> dict[str, Any]:
    return {"id": str(number), "type": "function", "function": {"name": name, "arguments": "{}"}}


def result(number: int, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


def spoken(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


USER = {"role": "user", "content": "Hi"}


def test_one_turn_of_several_items_is_one_message() -> None:
    assert said(USER, thought("Hm"), spoken("I look."), call(1), call(2), result(1), result(2), spoken("Done.")) == [
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm",
            "tool_calls": [called(1), called(2)],
        },
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"role": "tool", "tool_call_id": "2", "content": "ok"},
        {"role": "assistant", "content": "Done."},
    ]


def test_text_around_calls_is_one_text() -> None:
    [turn, _] = said(thought("a"), spoken("One "), call(1), thought("b"), spoken("two."), result(1))
    assert turn["content"] == "One two."
    assert turn["reasoning_content"] == "a\nb"
    assert turn["tool_calls"] == [called(1)]


def test_texts_in_a_row_are_turns_of_their_own() -> None:
    assert [turn["content"] for turn in said(spoken("One"), spoken("Two"), thought("Hm"), spoken("Three"))] == [
        "One",
        "Two",
        "Three",
    ]


def test_thinking_at_the_end_is_a_turn() -> None:
    assert said(USER, thought("Hm")) == [USER, {"role": "assistant", "content": "", "reasoning_content": "Hm"}]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"encrypted_content": seal("Plan é"), "content": []}, "Plan é"),
        ({"encrypted_content": seal("other")}, "Hm"),
        ({"encrypted_content": "gAAAA", "content": None, "summary": [{"type": "summary_text", "text": "S"}]}, "S"),
        ({"encrypted_content": "draftmesh1:%", "content": None}, None),
    ],
)
def test_thinking_comes_from_wherever_the_client_kept_it(item: dict[str, Any], text: str | None) -> None:
    [turn] = said({**thought("Hm"), **item}, spoken("x"))
    assert turn.get("reasoning_content") == text


def test_instructions_stay_where_they_are() -> None:
    roles = ["developer", "system", "user", "developer", "user"]
    assert [turn["role"] for turn in said(*({"role": role, "content": "x"} for role in roles))] == roles


@pytest.mark.parametrize(
    "output", ["a\nb", [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]]
)
def test_results_are_text_or_lists_of_text(output: Any) -> None:
    assert said(result(1, output))[0]["content"] == "a\nb"


def test_a_call_that_was_cut_off_was_never_made() -> None:
    assert said(USER, spoken("I look."), call(1, status="incomplete", arguments='{"a'), USER) == [
        USER,
        {"role": "assistant", "content": "I look."},
        USER,
    ]


@pytest.mark.parametrize("arguments", [None, "", {}, "{}"])
def test_arguments_are_json_text_in_the_end(arguments: Any) -> None:
    assert said(call(1, arguments=arguments))[0]["tool_calls"] == [called(1)]


def test_calls_of_custom_tools_are_calls_of_a_function_with_one_text() -> None:
    custom = {"type": "custom_tool_call", "call_id": "call_1", "name": "apply", "input": 'a"\n'}
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "ok"}]}
    assert said(custom, {**custom, "status": "incomplete"}, call(2), output) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "apply", "arguments": '{"input": "a\\"\\n"}'}},
                called(2),
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]


LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}


@pytest.mark.parametrize(
    ("format", "grammar"),
    [
        ({"type": "text"}, ""),
        (None, ""),
        (LARK, 'start: "a"'),
        ({**LARK, "syntax": "regex", "definition": "a/b"}, r"start: /a\/b/"),
        ({"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}, 'start: "a"'),
    ],
)
def test_a_custom_tool_is_a_function_whose_one_text_has_the_grammar(format: Any, grammar: str) -> None:
    custom = {"name": "apply", "description": "Edits.", "format": format}
    for declared in ({"type": "custom", **custom}, {"type": "custom", "custom": custom}):
        [tool] = toolbox([declared]).tools.values()
        assert (tool.name, tool.grammar) == ("apply", grammar)
        assert tool.description.startswith("Edits.")
        assert ("must match this" in tool.description) is bool(grammar)
        assert tool.parameters["required"] == ["input"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"format": LARK}, "tools[0].name"),
        ({"name": "a", "format": {"type": "xml"}}, "tools[0].format"),
        ({"name": "a", "format": {"type": "grammar", "syntax": "lark"}}, "tools[0].format.definition"),
        ({"name": "a", "format": {**LARK, "syntax": "peg"}}, "tools[0].format.syntax"),
        ({"name": "a", "format": {**LARK, "definition": ""}}, "tools[0].format.definition"),
    ],
)
def test_a_custom_tool_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        toolbox([{"type": "custom", **fields}])
    assert (raised.value.status, raised.value.param) == (400, param)


def test_the_input_of_a_custom_call_is_read_wherever_its_arguments_are_cut() -> None:
    text, arguments = 'a"é\n\\', '{ "input" : "a\\"\\u00e9\\n\\\\"}'
    for cut in range(len(arguments) + 1):
        reading = InputText()
        assert reading.push(arguments[:cut]) + reading.push(arguments[cut:]) == text


def test_unknown_items_leave_no_trace() -> None:
    assert said({"type": "web_search_call", "id": "ws_1", "status": "completed"}, USER) == [USER]


def test_functions_in_namespaces_are_told_apart() -> None:
    box = toolbox([TOOL, SPACE, {"type": "web_search"}])
    assert list(box.tools) == ["look", "files__open", "files__look"]
    assert box.origins["files__look"] == DeclaredTool("files", "look")
    assert box.dropped == ["mcp", "web_search"]
    [turn] = said(call(1, namespace="files"))
    assert turn["tool_calls"] == [called(1, "files__look")]
    assert list(toolbox([{**SPACE, "name": "mcp__x__"}]).tools) == ["mcp__x__open", "mcp__x__look"]


@pytest.mark.parametrize(
    ("choice", "parallel", "meant"),
    [
        ("auto", None, ToolChoice()),
        ("none", None, ToolChoice(mode="none")),
        ("required", False, ToolChoice(mode="required", parallel=False)),
        ({"type": "function", "name": "look"}, None, ToolChoice(mode="required", names=("look",), parallel=False)),
        ({"type": "custom", "name": "look"}, None, ToolChoice(mode="required", names=("look",), parallel=False)),
        ({"type": "function", "name": "look"}, True, ToolChoice(mode="required", names=("look",))),
        ({"type": "function", "name": "open"}, True, ToolChoice(mode="required", names=("files__open",))),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [TOOL, {"type": "web_search"}]},
            None,
            ToolChoice(mode="required", names=("look",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, None, ToolChoice(mode="none")),
    ],
)
def test_tool_choices(choice: Any, parallel: bool | None, meant: ToolChoice) -> None:
    assert tool_choice(choice, parallel, toolbox([TOOL, SPACE])) == meant


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function"},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "mode": "required", "tools": []},
        {"type": "allowed_tools", "mode": "never", "tools": [TOOL]},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "hide"}]},
    ],
)
def test_tool_choices_of_nothing_are_refused(choice: Any) -> None:
    with pytest.raises(ApiError, match="tool_choice"):
        tool_choice(choice, None, toolbox([TOOL]))
