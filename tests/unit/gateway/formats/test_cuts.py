"""However an answer is cut into pushes, its parts are the same; and long answers take time in proportion."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Text, Thought
from services.gateway.requests.types import ToolChoice
from tests.unit.gateway.formats.reading import AUTO, FORMATS, TOOLS, arguments, no_tokens, read
from tests.unit.gateway.formats.test_answers import CALLS, THOUGHTS

# What answers consist of, whole and in shreds.
_COMMON = [
    "a",
    " ",
    "\n",
    "\n\n",
    "😀",
    "e\u0301",
    '"',
    "\\",
    "\\u00",
    "\\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "1e5",
    "-",
    "null",
    "tru",
]
_JSON = [
    '{"name": "go", "arguments": ',
    '{"a": "x',
    '"name": ',
    '"go"',
    '"leave"',
    '{"name": "weather"',
    '"arguments": "{\\"a\\": 1}"}',
    "{}",
]
_MARKS = {
    "hermes": ["<think>", "</think>", "<tool_call>", "</tool_call>", "</thin", "k>", "<tool", "_call>"],
    "xml": [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=go>",
        "<function=weather>",
        "<parameter=city>",
        "<parameter=days>",
        "</parameter>",
        "</function>",
        "</par",
    ],
    "seed": [
        "<seed:think>",
        "</seed:think>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "<function=go>",
        "<parameter=a>",
        "</parameter>",
        "</function>",
    ],
    "llama3": ["<|python_tag|>", ";", '{"name": "go", "parameters": {}}', "<|pyth"],
    "mistral-list": ["[TOOL_CALLS]", "[ARGS]", "[TOOL_", '{"name": "go"}'],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "go", "weather", "[TOOL_"],
    "harmony": [
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "assistant",
        "analysis",
        "commentary to=functions.go ",
        "final",
        "<|call|>",
        "<|constrain|>",
        "<|ch",
    ],
}


def _answers(name: str) -> st.SearchStrategy[str]:
    whole = [CALLS[name], *([THOUGHTS[name]] if name in THOUGHTS else [])]
    pieces = st.sampled_from([*_COMMON, *_JSON, *_MARKS[name], *whole])
    return st.lists(pieces, max_size=12).map("".join)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), opened=st.booleans(), parallel=st.booleans())
def test_any_cuts_give_the_same_parts(name: str, data: st.DataObject, opened: bool, parallel: bool) -> None:
    text = data.draw(_answers(name))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    choice = ToolChoice(parallel=parallel)
    whole = read(name, text, choice=choice, opened=opened)
    assert read(name, text, cuts, choice=choice, opened=opened) == whole
    assert read(name, text, range(len(text)), choice=choice, opened=opened) == whole
    assert all(isinstance(value, dict) for _, value in arguments(whole))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_nothing_is_taken_back(name: str, data: st.DataObject) -> None:
    """A call's parts come in order, each call is complete before the next, and a fragment never lacks its brace."""
    text = data.draw(_answers(name))
    parser = FORMATS[name](no_tokens).parser(TOOLS, AUTO, opened=False)
    parts = [part for character in text for part in parser.push(character)] + parser.finish()
    current, ended, seen = -1, True, False
    for part in parts:
        match part:
            case CallStart(index):
                assert index == current + 1
                current, ended, seen = index, False, False
            case CallArguments(index, fragment):
                assert index == current
                assert not ended
                assert fragment
                assert seen or fragment.startswith("{")
                seen = True
            case CallEnd(index):
                assert index == current
                assert seen
                ended = True
            case Text(text) | Thought(text):
                assert text


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.text(st.sampled_from('a <{[\n😀\\"')), cuts=st.lists(st.integers(0, 30), max_size=5))
@example(text="<", cuts=[])
def test_text_without_marks_comes_out_as_it_went_in(name: str, text: str, cuts: list[int]) -> None:
    cuts = [min(cut, len(text)) for cut in cuts]
    assert "".join(part.text for part in read(name, text, cuts) if isinstance(part, Text)) == text


def test_arguments_stream_as_they_come() -> None:
    parser = FORMATS["hermes"](no_tokens).parser(TOOLS, AUTO, opened=False)
    assert parser.push('<tool_call>{"name": "go", "arguments": ') == []
    assert [type(part) for part in parser.push('{"a": "x')] == [CallStart, CallArguments]
    assert parser.push("yz") == [CallArguments(0, "yz")]
    parser = FORMATS["xml"](no_tokens).parser(TOOLS, AUTO, opened=False)
    parser.push("<tool_call><function=weather><parameter=city>\nOs")
    assert parser.push('l"o') == [CallArguments(0, 'l\\"o')]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "word " * 50_000),
        ("hermes", "\n" * 200_000),
        ("hermes", "<" * 200_000),
        ("hermes", "<tool_call>" * 20_000),
        ("hermes", '<tool_call>{"name": "go", "arguments": {"a": "' + "x\\n" * 60_000 + '"}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {"a": "' + "x\\n" * 60_000 + '"}, "name": "leave"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "go", "arguments": {"a": [' + "1, " * 60_000 + "1]}}</tool_call>"),
        ("xml", "<tool_call><function=weather><parameter=city>" + "</parameter>\n" * 15_000),
        ("xml", "<tool_call><function=weather><parameter=days>" + "\n" * 200_000 + "</parameter></function>"),
        ("mistral", "[TOOL_CALLS]" + "go" * 100_000),
        ("llama3", "{" * 200_000),
        ("harmony", "<|channel|>" * 20_000),
    ],
)
def test_a_long_answer_takes_time_in_proportion(name: str, text: str) -> None:
    def seconds(part: str) -> float:
        parser = FORMATS[name](no_tokens).parser(TOOLS, AUTO, opened=False)
        start = time.process_time()
        for at in range(0, len(part), 4):
            parser.push(part[at : at + 4])
        parser.finish()
        return time.process_time() - start

    short, long = seconds(text[: len(text) // 8]), seconds(text)
    assert long < 30 * max(short, 0.003)  # quadratic would be 64
