"""Chat fields that say what may be called, what the answer must match and how much to think."""

import json
from typing import Any

import pytest

from services.gateway.dialects.chat.answer import completions_exchange
from services.gateway.dialects.chat.request import parse_chat
from services.gateway.errors import ApiError
from services.gateway.requests.types import GenerationRequest, Output, Reasoning, Tool, ToolChoice

MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**SCHEMA, "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]


def request(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"messages": MESSAGES, **fields}).encode()).generation()


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        request(**fields)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message
    return caught.value


# ------------------------------------------------------------------ tools


def test_tools_with_and_without_description_and_parameters() -> None:
    function = {"name": "f", "description": "Does f.", "parameters": CLOSED, "strict": True}
    tools = [{"type": "function", "function": function}, {"function": {"name": "g", "parameters": None}}]
    assert request(tools=tools).tools == (Tool(name="f", description="Does f.", parameters=CLOSED), Tool(name="g"))


def test_a_strict_function_leaves_no_key_open() -> None:
    inner = {**CLOSED, "properties": {"b": {"type": ["object", "null"], "properties": {}}}}
    for parameters, place in ((SCHEMA, "the outermost one"), ({}, "the outermost one"), (inner, "'properties.b'")):
        error = refusal(tools=[{"function": {"name": "f", "parameters": parameters, "strict": True}}])
        assert error.param == "tools[0].function"
        assert error.message.endswith(f"'additionalProperties' to be false in every object, also in {place}.")
        assert request(tools=[{"function": {"name": "f", "parameters": parameters}}]).tools
    [tool] = request(tools=[{"function": {"name": "f", "strict": True}}]).tools
    assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_null_in_a_schema_means_absent_but_not_among_values() -> None:
    given = {
        "type": "object",
        "properties": {
            "a": {"enum": [None, 1], "default": None, "items": None},
            "b": None,
            "c": {"anyOf": [{"not": None}]},
        },
        "required": None,
        "$defs": {"d": {"properties": None, "const": None}},
    }
    [tool] = request(tools=[{"function": {"name": "f", "parameters": given}}]).tools
    assert tool.parameters == {
        "type": "object",
        "properties": {"a": {"enum": [None, 1], "default": None}, "b": {}, "c": {"anyOf": [{}]}},
        "$defs": {"d": {"const": None}},
    }
    output = request(json_schema={"type": "array", "items": None}).output
    assert output is not None
    assert output.source == {"type": "array"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ("any", ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "g"}}, ToolChoice(mode="required", names=("g",), parallel=False)),
        ({"type": "function", "name": "g"}, ToolChoice(mode="required", names=("g",), parallel=False)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS}},
            ToolChoice(mode="required", names=("f", "g")),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}, ToolChoice(names=("f",))),
    ],
)
def test_every_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert request(tools=TOOLS, tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize("wanted", [True, False])
def test_parallel_calls_as_asked_for(wanted: bool) -> None:
    named = {"type": "function", "function": {"name": "g"}}
    assert request(tools=TOOLS, parallel_tool_calls=wanted).tool_choice.parallel is wanted
    assert request(tools=TOOLS, parallel_tool_calls=wanted, tool_choice=named).tool_choice.parallel is wanted


def test_tools_of_foreign_types_are_ignored_by_name() -> None:
    foreign = [{"type": "custom", "custom": {"name": "c"}}, {"type": "web_search"}, {"type": "web_search", "x": 1}]
    asked = completions_exchange(json.dumps({"messages": MESSAGES, "tools": [*TOOLS, *foreign]}).encode())
    assert [tool.name for tool in asked.generation().tools] == ["f", "g"]
    assert list(asked.warnings) == ["tools of type 'custom' are ignored", "tools of type 'web_search' are ignored"]


def test_a_tool_choice_without_tools_is_harmless_unless_it_requires_one() -> None:
    assert request(tool_choice="auto", parallel_tool_calls=True).tools == ()
    assert request(tools=[], tool_choice="none").tools == ()
    assert refusal(tool_choice="required").param == "tool_choice"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": 3}]}, "tools[0].type"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools[0].function.parameters"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": "f"}, "tools"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": 1}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": 3}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
    ],
)
def test_tools_at_fault_are_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.param or "").startswith(param)
    assert param.split("[")[0] in error.message


# ------------------------------------------------------------------ required output


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"response_format": {"type": "json_object"}}, ("json", {"type": "object"}, "response_format")),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, ("json", SCHEMA, "response_format.schema")),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, ("json", SCHEMA, "response_format.schema")),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": CLOSED},
                }
            },
            ("json", CLOSED, "response_format.json_schema.schema"),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
            ("json", {}, "response_format.json_schema.schema"),
        ),
        ({"json_schema": SCHEMA}, ("json", SCHEMA, "json_schema")),
        ({"json_schema": json.dumps(SCHEMA)}, ("json", SCHEMA, "json_schema")),
        ({"regex": "a+"}, ("regex", "a+", "regex")),
        ({"regex_pattern": "a+"}, ("regex", "a+", "regex_pattern")),
        ({"grammar": 'root ::= "a"'}, ("gbnf", 'root ::= "a"', "grammar")),
        ({"grammar": 'start: "a"'}, ("lark", 'start: "a"', "grammar")),
        ({"grammar_string": 'root ::= "a"'}, ("gbnf", 'root ::= "a"', "grammar_string")),
        ({"ebnf": 'root ::= "a"'}, ("gbnf", 'root ::= "a"', "ebnf")),
        ({"lark": 'start: "::="'}, ("lark", 'start: "::="', "lark")),
        ({"structured_outputs": {"json": SCHEMA}}, ("json", SCHEMA, "structured_outputs.json")),
        ({"structured_outputs": {"regex": "a"}}, ("regex", "a", "structured_outputs.regex")),
        ({"structured_outputs": {"json_object": True}}, ("json", {"type": "object"}, "structured_outputs.json_object")),
        (
            {"structured_outputs": {"choice": ["a b", 'c"']}},
            ("lark", 'start: "a b" | "c\\""', "structured_outputs.choice"),
        ),
        ({"structured_outputs": {"grammar": "x ::= y"}}, ("gbnf", "x ::= y", "structured_outputs.grammar")),
        ({"structured_outputs": {"json": {}}}, ("json", {}, "structured_outputs.json")),
        ({"json_schema": {}}, ("json", {}, "json_schema")),
        ({"json_schema": "{}"}, ("json", {}, "json_schema")),
        ({"guided_json": {}}, ("json", {}, "guided_json")),
        ({"guided_json": SCHEMA, "guided_decoding_backend": "auto"}, ("json", SCHEMA, "guided_json")),
        ({"guided_regex": "a"}, ("regex", "a", "guided_regex")),
        ({"guided_choice": ["a"]}, ("lark", 'start: "a"', "guided_choice")),
        ({"guided_grammar": "x ::= y"}, ("gbnf", "x ::= y", "guided_grammar")),
    ],
)
def test_every_name_of_a_required_output(fields: dict[str, Any], output: tuple[Any, Any, str]) -> None:
    kind, source, param = output
    assert request(**fields).output == Output(kind=kind, source=source, param=param)


def test_nothing_required_is_any_text() -> None:
    empty = {"grammar": "", "grammar_string": "", "json_schema": None, "structured_outputs": None, "regex": None}
    assert request(**empty, response_format={"type": "text"}, guided_decoding_backend="auto").output is None


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": ""},
        {"regex_pattern": ""},
        {"ebnf": ""},
        {"lark": ""},
        {"guided_regex": ""},
        {"guided_choice": []},
        {"guided_grammar": ""},
        {"structured_outputs": {}},
        {"structured_outputs": {"regex": ""}},
        {"structured_outputs": {"choice": []}},
        {"structured_outputs": {"grammar": ""}},
        {"structured_outputs": {"json_object": False}},
        {"json_schema": ""},
    ],
    ids=str,
)
def test_an_empty_constraint_is_refused_and_never_gives_free_text(fields: dict[str, Any]) -> None:
    [name] = fields
    error = refusal(**fields)
    assert (error.param or "").startswith(name)
    assert "must" in error.message


def test_a_strict_schema_of_the_answer_leaves_no_key_open() -> None:
    named = {"name": "n", "strict": True, "schema": SCHEMA}
    error = refusal(response_format={"type": "json_schema", "json_schema": named})
    assert error.param == "response_format.json_schema.schema"
    assert "'additionalProperties' to be false" in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": "json"}, "response_format"),
        ({"json_schema": "{"}, "json_schema"),
        ({"json_schema": "[1]"}, "json_schema"),
        ({"regex": "a", "grammar": "x ::= y"}, "grammar"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        ({"structured_outputs": {"structural_tag": {"a": 1}}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice[0]"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"grammar_lazy": True}, "grammar_lazy"),
    ],
)
def test_an_output_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert param in error.message


def test_an_unknown_old_name_of_vllm_is_refused_with_the_new_one() -> None:
    assert refusal(guided_tag="a").message == "'guided_tag' is not supported: use 'structured_outputs'."


# ------------------------------------------------------------------ thinking


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({}, Reasoning()),
        ({"reasoning_effort": "low"}, Reasoning(effort="low")),
        ({"reasoning_effort": "none"}, Reasoning(effort="none", enabled=False)),
        ({"reasoning": {"effort": "high"}}, Reasoning(effort="high")),
        ({"reasoning": {"max_tokens": 5}}, Reasoning(budget=5)),
        ({"reasoning": {"enabled": False}}, Reasoning(enabled=False)),
        ({"thinking_token_budget": 7}, Reasoning(budget=7)),
        ({"thinking_budget": 7, "reasoning_budget_tokens": 3}, Reasoning(budget=3)),
        ({"reasoning_budget": -1}, Reasoning()),
        ({"reasoning_budget": 0}, Reasoning(budget=0)),
        ({"enable_thinking": True}, Reasoning(enabled=True)),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, Reasoning(enabled=True, budget=9)),
        ({"thinking": {"type": "disabled"}}, Reasoning(enabled=False)),
        ({"thinking": {"type": "adaptive"}}, Reasoning()),
        ({"chat_template_kwargs": {"enable_thinking": False}}, Reasoning(enabled=False)),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, Reasoning(effort="high")),
        ({"chat_template_kwargs": {"reasoning_effort": ["template's own"]}}, Reasoning()),
    ],
)
def test_every_name_of_how_much_to_think(fields: dict[str, Any], reasoning: Reasoning) -> None:
    assert request(**fields).reasoning == reasoning


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"thinking_token_budget": -2}, "thinking_token_budget"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"reasoning_format": "none"}, "reasoning_format"),
        ({"separate_reasoning": False}, "separate_reasoning"),
    ],
)
def test_thinking_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert param in error.message
