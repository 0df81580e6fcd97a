"""What each format makes of whole answers. The same answers in other cuts: test_cuts."""

import pytest

from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Text, Thought
from services.gateway.formats.sink import random_id
from services.gateway.requests.types import ToolChoice
from tests.unit.gateway.formats.reading import AUTO, FORMATS, TOOLS, read, told

OSLO = ("weather", '{"city": "Oslo"}')

# One call, as each model writes it.
CALLS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "xml": "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "seed": "<seed:tool_call><function=weather><parameter=city>Oslo</parameter></function></seed:tool_call>",
    "llama3": '{"name": "weather", "parameters": {"city": "Oslo"}}',
    "mistral-list": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}, "id": "123456789"}]',
    "mistral": '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}',
    "harmony": '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}',
}
THOUGHTS = {
    "hermes": "<think>\nHm.\n</think>\n\n",
    "xml": "<think>\nHm.\n</think>\n\n",
    "seed": "<seed:think>Hm.</seed:think>",
    "mistral": "[THINK]Hm.[/THINK]",
    "harmony": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_a_start_arguments_and_an_end(name: str) -> None:
    start, *fragments, end = read(name, CALLS[name])
    assert start == CallStart(0, "id0", "weather")
    assert fragments == [CallArguments(0, '{"city": "Oslo"}')]
    assert end == CallEnd(0)


_SURE = {"hermes": 6, "xml": 6, "seed": 8, "llama3": 7, "mistral-list": 6, "mistral": 6, "harmony": 11}
_SECOND = {
    **{name: (text + "\n", text) for name, text in CALLS.items() if name in ("hermes", "xml", "seed")},
    "llama3": (CALLS["llama3"] + "; ", CALLS["llama3"]),
    "mistral-list": (CALLS["mistral-list"].removesuffix("]"), ', {"name": "go", "arguments": {"a": 1}}]'),
    "mistral": (CALLS["mistral"], CALLS["mistral"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_part_of_a_call_that_was_cut_off_is_text(name: str) -> None:
    """From where its opening mark is half complete: before that, it may be any text."""
    for cut in range(_SURE[name], len(CALLS[name])):
        parts = read(name, CALLS[name][:cut])
        assert not [part for part in parts if isinstance(part, Text) and part.text.strip()], cut
        if name not in ("llama3", "harmony"):
            said = [part.text for part in read(name, "I look." + CALLS[name][:cut]) if isinstance(part, Text)]
            assert "".join(said) == "I look.", cut


@pytest.mark.parametrize("name", _SECOND)
def test_a_call_that_was_cut_off_leaves_the_complete_ones_before_it_alone(name: str) -> None:
    first, second = _SECOND[name]
    for cut in range(_SURE[name], len(second)):
        parts = read(name, first + second[:cut])
        assert CallEnd(0) in parts
        assert not [part for part in parts if isinstance(part, Text) and part.text.strip()], cut


@pytest.mark.parametrize("name", ["hermes", "xml", "mistral"])
def test_what_turns_out_to_be_no_call_stays_text_to_its_end(name: str) -> None:
    opener = {"hermes": "<tool_call>", "xml": "<tool_call>", "mistral": "[TOOL_CALLS]"}[name]
    for text in (f"Write {opener} first.", f"{opener}\nhello", "a <t", "a <to", "{", '{"n'):
        assert "".join(part.text for part in read(name, text) if isinstance(part, Text)) == text


@pytest.mark.parametrize("name", THOUGHTS)
def test_thinking_comes_before_a_call_without_the_white_space_around_it(name: str) -> None:
    assert told(read(name, THOUGHTS[name] + CALLS[name])) == [("thought", "Hm."), OSLO]


@pytest.mark.parametrize("name", FORMATS)
def test_a_plain_answer_is_text_to_the_last_space(name: str) -> None:
    for text in ("Hello", "\n Hello 😀\n", "a < b <", "", "\n\n", "The <tool> and [TOOL"):
        assert "".join(part.text for part in read(name, text) if isinstance(part, Text)) == text


@pytest.mark.parametrize("name", THOUGHTS)
def test_without_tools_thinking_is_still_told_apart_and_calls_are_text(name: str) -> None:
    choice = ToolChoice(mode="none")
    parts = read(name, THOUGHTS[name] + "Fine.\n", choice=choice)
    assert told(parts) == [("thought", "Hm."), ("text", "Fine.\n")] or name == "harmony"
    assert not any(isinstance(part, CallStart) for part in read(name, CALLS[name], choice=choice))
    assert not any(isinstance(part, CallStart) for part in read(name, CALLS[name], tools=()))


@pytest.mark.parametrize(
    ("opened", "text"),
    [
        (True, "Hm.\n</think>\n\nFine."),
        (True, "<think>\nHm.\n</think>\n\nFine."),  # the mark that the prompt ends with, once more
        (False, "<think>Hm.</think>Fine."),
        (False, "\n<think>\nHm.</think>\nFine."),
    ],
)
def test_the_span_may_be_opened_by_the_prompt_or_by_the_model(opened: bool, text: str) -> None:
    assert told(read("hermes", text, opened=opened)) == [("thought", "Hm."), ("text", "Fine.")]


def test_a_mark_of_thinking_inside_the_text_is_text() -> None:
    assert told(read("hermes", "Write <think> and </think>.")) == [("text", "Write <think> and </think>.")]


def test_no_thoughts_leave_no_part() -> None:
    assert read("hermes", "<think>\n\n</think>\n\nFine.") == (Text("Fine."),)


def test_thinking_that_was_cut_off_is_thinking() -> None:
    assert read("hermes", "<think>Hm. \n") == (Thought("Hm."),)
    assert read("hermes", "Hm. </thi", opened=True) == (Thought("Hm. </thi"),)


def test_a_call_inside_the_thinking_is_thought() -> None:
    text = f"<think>{CALLS['hermes']}</think>Done."
    assert told(read("hermes", text)) == [("thought", CALLS["hermes"]), ("text", "Done.")]


@pytest.mark.parametrize("name", ["hermes", "xml", "seed", "mistral"])
def test_several_calls_have_their_own_index_and_id_and_text_may_stand_between(name: str) -> None:
    text = f"First.\n\n{CALLS[name]}\n{CALLS[name]}\n\nThen.\n{CALLS[name]}"
    parts = read(name, text)
    assert told(parts) == [("text", "First."), OSLO, OSLO, ("text", "Then."), OSLO]
    assert [(p.index, p.id) for p in parts if isinstance(p, CallStart)] == [(0, "id0"), (1, "id1"), (2, "id2")]


def test_only_the_first_call_counts_where_calls_may_not_be_parallel() -> None:
    text = f"{CALLS['hermes']}\n{CALLS['hermes']}"
    assert told(read("hermes", text, choice=ToolChoice(parallel=False))) == [OSLO]


def test_ids_are_random_hexadecimal() -> None:
    ids = {random_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(bytes.fromhex(id)) for id in ids} == {12}


def hermes(inside: str) -> list[object]:
    return told(read("hermes", f"<tool_call>{inside}</tool_call>"))


@pytest.mark.parametrize(
    ("inside", "call"),
    [
        ('{"name": "go"}', ("go", "{}")),
        ('{"name": "go", "arguments": null}', ("go", "{}")),
        ('{"name": "go", "arguments": {}}', ("go", "{}")),
        ('{"name": "go", "arguments": ""}', ("go", "{}")),
        ('{"arguments": {"a": 1}, "name": "go"}', ("go", '{"a": 1}')),
        ('{"id": 7, "type": "function", "name": "go", "parameters": {"a": [1]}}', ("go", '{"a": [1]}')),
        (r'{"name": "go", "arguments": "{\"a\": \"\\\"\\ud83d\\ude00\"}"}', ("go", r'{"a": "\"\ud83d\ude00"}')),
        (r'{"name": "go", "arguments": "{\"a\": \"\ud83d\ude00\"}"}', ("go", '{"a": "😀"}')),
        (r'{"name": "\u0067o", "arguments": {}}', ("go", "{}")),
        (
            '{"name": "go", "arguments": {"a": "</tool_call>{}\\"<tool_call>"}}',
            ("go", '{"a": "</tool_call>{}\\"<tool_call>"}'),
        ),
        ('{"name": "go", "arguments": {"a": "x\ny\tz"}}', ("go", '{"a": "x\\ny\\tz"}')),  # breaks left unescaped
        ('{"name": "go", "arguments": {"a": 1}', ("go", '{"a": 1}')),  # the last brace forgotten
        ('{ "name" : "go" , "arguments" : { "a" : 1 } }', ("go", '{ "a" : 1 }')),
        ('{"name": "go", "why": {"a": [1, "}"]}, "arguments": {}}', ("go", "{}")),
    ],
)
def test_calls_may_be_written_in_many_ways(inside: str, call: object) -> None:
    assert hermes(inside) == [call]


@pytest.mark.parametrize(
    "inside",
    [
        '{"name": "leave", "arguments": {}}',
        '{"arguments": {"a": 1}, "name": "leave"}',
        '{"name": "go", "arguments": [1]}',
        '{"name": "go", "arguments": "nothing"}',
        '{"name": "go", "arguments": 5}',
        '{"name": 5}',
        '{"arguments": {}}',
        "{}",
        "go()",
        "",
        '{"name": "go" "arguments": {}}',
        '{"name": "go\\x", "arguments": {}}',
    ],
)
def test_what_is_no_call_stays_text(inside: str) -> None:
    assert hermes(inside) == [("text", f"<tool_call>{inside}</tool_call>")]


def test_what_breaks_after_its_arguments_began_is_a_call_without_end_and_the_rest_is_text() -> None:
    assert hermes('{"name": "go", "arguments": {"a": oops}}') == [
        ("go", '{"a": '),
        "cut off",
        ("text", "oops}}</tool_call>"),
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_was_cut_off_has_no_end_and_nothing_of_it_shows_twice(name: str) -> None:
    whole = CALLS[name]
    for length in range(len(whole)):
        parts = read(name, whole[:length])
        started = any(isinstance(part, CallStart) for part in parts)
        assert not (started and any(isinstance(part, Text) for part in parts))
        if any(isinstance(part, CallEnd) for part in parts):
            assert told(parts) == [OSLO]


def test_the_end_of_a_call_may_be_forgotten() -> None:
    call = '<tool_call>{"name": "go", "arguments": {}}'
    assert told(read("hermes", f"{call}\n{call}")) == [("go", "{}"), ("go", "{}")]
    assert told(read("xml", "<function=go>\n<parameter=a>\n1\n</parameter>\n</tool_call>")) == [("go", '{"a": 1}')]


@pytest.mark.parametrize("name", ["xml", "seed"])
@pytest.mark.parametrize(
    ("key", "value", "json_text"),
    [
        ("city", "\nOslo\n", '"Oslo"'),
        ("city", "Oslo", '"Oslo"'),
        ("city", "\n\nOslo\n\n", '"\\nOslo\\n"'),
        ("city", '\nA "B"\n\tC\\😀\n', '"A \\"B\\"\\n\\tC\\\\😀"'),
        ("city", "\n12\n", '"12"'),
        ("city", "\n</parameter> ends a value\n", '"</parameter> ends a value"'),
        ("city", "\n<function=x> </function> </tool_call>\n", '"<function=x> </function> </tool_call>"'),
        ("city", "", '""'),
        ("days", "\n12\n", "12"),
        ("days", "\nsoon\n", '"soon"'),
        ("unit", "\nC\n", '"C"'),
        ("places", '\n["a", "</parameter>b"]\n', '["a", "</parameter>b"]'),
        ("unknown", '\n{"a": 1}\n', '{"a": 1}'),
        ("unknown", "\nTrue\n", "true"),
        ("unknown", "\nsome text\n", '"some text"'),
    ],
)
def test_bare_values_become_json_by_the_tools_schema(name: str, key: str, value: str, json_text: str) -> None:
    prefix = "seed:" if name == "seed" else ""
    text = (
        f"<{prefix}tool_call>\n<function=weather>\n<parameter={key}>{value}</parameter>\n"
        f"<parameter=days>\n3\n</parameter>\n</function>\n</{prefix}tool_call>"
    )
    assert told(read(name, text)) == [("weather", f'{{"{key}": {json_text}, "days": 3}}')]


def test_a_function_without_parameters_is_called_with_none() -> None:
    assert told(read("xml", "<tool_call>\n<function=go>\n</function>\n</tool_call>")) == [("go", "{}")]


@pytest.mark.parametrize("inside", ["<function=leave>\n</function>", "<function=go", "<function=go>go", "go"])
def test_a_function_that_is_none_stays_text(inside: str) -> None:
    text = f"<tool_call>\n{inside}\n</tool_call>"
    assert told(read("xml", text)) == [("text", text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<|python_tag|>{"name": "go", "parameters": {}}', [("go", "{}")]),
        (
            '{"name": "go", "parameters": {}}; {"name": "go_on", "parameters": {"a": 1}}',
            [("go", "{}"), ("go_on", '{"a": 1}')],
        ),
        ('\n{"type": "function", "name": "go", "parameters": {"a": "1"}}', [("go", '{"a": "1"}')]),
        ('Look: <|python_tag|>{"name": "go", "parameters": {}}', [("text", "Look:"), ("go", "{}")]),
        ('{"name": "leave", "parameters": {}}', [("text", '{"name": "leave", "parameters": {}}')]),
        ('{"city": "Oslo"}', [("text", '{"city": "Oslo"}')]),
        ('As JSON: {"name": "go", "parameters": {}}', [("text", 'As JSON: {"name": "go", "parameters": {}}')]),
    ],
)
def test_llama_3_calls_with_its_whole_answer_or_behind_its_mark(text: str, expected: list[object]) -> None:
    assert told(read("llama3", text)) == expected


def test_an_answer_in_json_is_not_withheld_to_its_end() -> None:
    parser = FORMATS["llama3"](lambda text: None).parser(TOOLS, AUTO, opened=False)
    assert parser.push('{"city": "Os') == [Text('{"city": "Os')]


@pytest.mark.parametrize("name", ["mistral", "mistral-list"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[TOOL_CALLS] [{"name": "go", "arguments": {}}, {"name": "go_on", "arguments": {"a": 1}}]',
            [("go", "{}"), ("go_on", '{"a": 1}')],
        ),
        ('[TOOL_CALLS]go[CALL_ID]a1B2c3D4e[ARGS]{"a": "[TOOL_CALLS]"}', [("go", '{"a": "[TOOL_CALLS]"}')]),
        ('[TOOL_CALLS]go{"a": 1}[TOOL_CALLS]go_on[ARGS]{}', [("go", '{"a": 1}'), ("go_on", "{}")]),
        ("[TOOL_CALLS]leave[ARGS]{}", [("text", "[TOOL_CALLS]leave[ARGS]{}")]),
        ("[TOOL_CALLS][]", [("text", "[TOOL_CALLS][]")]),
        (
            '[TOOL_CALLS][{"name": "go", "arguments": {}}, {"name": "leave"}]',
            [("go", "{}"), ("text", ', {"name": "leave"}]')],
        ),
    ],
)
def test_mistral_writes_lists_or_names(name: str, text: str, expected: list[object]) -> None:
    assert told(read(name, text)) == expected


START = "<|start|>assistant"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"<|channel|>analysis<|message|>Hm.<|end|>{START}<|channel|>final<|message|>Fine.\n",
            [("thought", "Hm."), ("text", "Fine.\n")],
        ),
        (
            f"<|channel|>analysis<|message|>A<|end|>{START}<|channel|>analysis<|message|>B<|end|>"
            f"{START}<|channel|>final<|message|>C<|return|>",
            [("thought", "A\n\nB"), ("text", "C")],
        ),
        (
            f"<|channel|>commentary<|message|>I look.<|end|>"
            f"{START}<|channel|>commentary to=functions.go <|constrain|>json<|message|>{{}}<|call|>",
            [("text", "I look."), ("go", "{}")],
        ),
        (' to=functions.go<|channel|>commentary json<|message|>{"a": 1}', [("go", '{"a": 1}')]),
        ('<|channel|>analysis to=functions.go code<|message|>{"a": 1}', [("go", '{"a": 1}')]),
        ("<|channel|>commentary to=go <|message|>{}", [("go", "{}")]),
        ('<|channel|>commentary to=functions.leave <|message|>{"a": 1}', [("text", '{"a": 1}')]),
        ("No header.<|return|>", [("text", "No header.")]),
        ("<|channel|>final<|message|>", []),
        ("<|channel|>commentary to=functions.go <|message|>", []),
    ],
)
def test_harmony_messages_are_told_apart_by_channel_and_recipient(text: str, expected: list[object]) -> None:
    assert told(read("harmony", text)) == expected


def test_harmony_may_begin_inside_the_analysis() -> None:
    text = f"Hm.<|end|>{START}<|channel|>final<|message|>Fine."
    assert told(read("harmony", text, opened=True)) == [("thought", "Hm."), ("text", "Fine.")]


def test_only_tools_that_the_choice_names_are_called() -> None:
    text = CALLS["hermes"]
    assert told(read("hermes", text, choice=ToolChoice(names=("go",)))) == [("text", text)]
    assert told(read("hermes", text, choice=ToolChoice(names=("weather",)))) == [OSLO]
