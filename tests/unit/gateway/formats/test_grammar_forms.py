"""What a client's answer must match becomes one checked grammar, or a 400 that says where it cannot be enforced."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from services.gateway.errors import ApiError
from services.gateway.formats.grammars import Composer, schema_fault
from services.gateway.requests.types import Output
from shared.law.grammar import FORMATS, GrammarError, Grammars, Matcher
from shared.model.llama.model import Model
from tests.toys import EOG, MARK, ToyVocabulary

TOY = ToyVocabulary()
GRAMMARS = Grammars(TOY)
PARAM = "response_format.json_schema.schema"
Kind = Literal["json", "regex", "lark", "gbnf"]


@pytest.fixture
def composer() -> Composer:
    return Composer(GRAMMARS)


def output(kind: Kind, source: Any, param: str = PARAM) -> Output:
    return Output(kind=kind, source=source, param=param)


async def message(composer: Composer, kind: Kind, source: Any, lark: str = "start: @output") -> str:
    with pytest.raises(ApiError) as raised:
        await composer.compose(lark, output(kind, source))
    error = raised.value
    assert (error.status, error.param) == (400, PARAM)
    assert "\n" not in error.message
    return error.message


def accepts(grammar: str, text: str) -> bool:
    tokens = [*TOY.tokenize(text), EOG]
    return GRAMMARS.compile(grammar).allows(tokens) == len(tokens)


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        ("json", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, '{"a": 1}', "{}"),
        ("json", {"type": "object"}, '{"a": [1, {"b": true}]}', "[1]"),
        ("regex", "[0-9]{2}:[a-f]+", "12:abc", "1:abc"),
        ("lark", 'start: output | "x"\noutput: "name" start\n', "namex", "name"),
        ("gbnf", 'root ::= "yes" | item\nitem ::= "no" [a-c]*\n', "noab", "maybe"),
    ],
)
async def test_every_kind_becomes_a_grammar(composer: Composer, kind: Kind, source: Any, good: str, bad: str) -> None:
    grammar = await composer.compose("start: @output", output(kind, source))
    assert accepts(grammar, good)
    assert not accepts(grammar, bad)


async def test_an_output_may_stand_within_what_a_format_writes_around_it(composer: Composer) -> None:
    """The rule names of both are their own."""
    lark = 'start: "a" TEXT <mark> @output\nTEXT: /[b-d]*/'
    grammar = await composer.compose(lark, output("lark", 'start: TEXT\nTEXT: "true"'))
    tokens = [*TOY.tokenize("abc"), MARK, *TOY.tokenize("true"), EOG]
    assert GRAMMARS.compile(grammar).allows(tokens) == len(tokens)
    without = await composer.compose('start: "name"', None)
    assert accepts(without, "name")


@pytest.mark.parametrize("text", ['{"a":1}', '{ "a": 1}', '{"a": 1 }', '{"a": 1} ', ' {"a": 1}', '{"a": \n1}'])
async def test_json_leaves_no_choice_of_white_space(composer: Composer, text: str) -> None:
    grammar = await composer.compose("start: @output", output("json", {"type": "object"}))
    assert accepts(grammar, '{"a": 1, "b": 2}')
    assert not accepts(grammar, text)


async def test_a_schemas_own_style_is_kept(composer: Composer) -> None:
    style = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    grammar = await composer.compose("start: @output", output("json", {"type": "object", "x-guidance": style}))
    assert accepts(grammar, '{"a":1,"b":2}')


async def test_a_format_that_no_grammar_knows_is_an_annotation(composer: Composer) -> None:
    """Also below other schemas; what is no schema, such as a property of that name, stays."""
    for name in ("password", "binary", "regex", "byte", "uri-reference", "json-pointer", "int64", ""):
        text = {"type": "string", "format": name, "maxLength": 2}
        named = {"type": "object", "properties": {"format": text, "a": {"anyOf": [{"type": "null"}, text]}}}
        grammar = await composer.compose("start: @output", output("json", named))
        assert accepts(grammar, '{"format": "ab", "a": "1"}')
        assert not accepts(grammar, '{"format": "abc"}')
        assert not accepts(grammar, '{"format": 1}')


def test_the_formats_are_those_that_llguidance_knows() -> None:
    assert all(schema_fault({"type": "string", "format": name}) is None for name in FORMATS)
    others = {"idn-email", "iri", "json-pointer", "regex", "uri-reference", "uri-template", "password", "byte"}
    assert all(schema_fault({"type": "string", "format": name}) is not None for name in others)


@pytest.mark.parametrize("text", ["1", '"a"', "null", "[1]", '{"a": 1}'])
async def test_an_empty_schema_is_any_json_and_nothing_else(composer: Composer, text: str) -> None:
    grammar = await composer.compose("start: @output", output("json", {}))
    assert accepts(grammar, text)
    assert not accepts(grammar, "name")


NESTED = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "format": 5}}}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
            ".properties.a.not: keyword 'not' is not supported.",
        ),
        (NESTED, ".properties.a.items.format: Expected string for 'format', got 5."),
        ({"type": "strin"}, ".type: Invalid type: strin."),
        ({"if": {}, "then": {}}, ".if: keyword 'if' is not supported."),
        (
            {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "(?=x)y"}]},
            ".anyOf.1.pattern: look-around, including look-ahead and look-behind, is not supported.",
        ),
        (
            {"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"properties": {"d": {"contains": {}}}}}},
            ".$defs.n.properties.d.contains: keyword 'contains' is not supported.",
        ),
        (
            {
                "$ref": "#/$defs/n",
                "$defs": {"n": {"properties": {"c": {"$ref": "#/$defs/n"}, "d": {"uniqueItems": True}}}},
            },
            ".$defs.n.properties.d.uniqueItems: keyword 'uniqueItems' is not supported.",
        ),
        ({"properties": {"b": {"$ref": "#/$defs/no"}}}, ".properties.b.$ref: Pointer '/$defs/no' does not exist."),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, ".allOf: Unsatisfiable schema: incompatible types."),
        ({"required": "x"}, """.required: Expected array for 'required', got "x"."""),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_refused_with_path_and_keyword(
    composer: Composer, schema: dict[str, Any], said: str
) -> None:
    assert await message(composer, "json", schema) == PARAM + said


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        ("regex", "a(", "unclosed group"),
        ("lark", "start: foo", 'unknown name: "foo"'),
        ("lark", "start: <nope>", 'unknown special token: "<nope>"'),
        ("lark", 'foo: "a"', "no start rule found"),
        ("gbnf", 'root ::= "yes', "Unexpected end of input"),
        ("gbnf", "root ::= " + "(" * 9000, "too deeply nested"),
        ("lark", "start: /" + "a" * (1 << 20) + "/", "longer than 1048576 bytes"),
    ],
)
async def test_other_grammars_are_refused_with_their_own_message(
    composer: Composer, kind: Kind, source: str, said: str
) -> None:
    text = await message(composer, kind, source)
    assert text.startswith(f"'{PARAM}' cannot be enforced: ")
    assert said in text


async def test_a_good_grammar_is_compiled_once(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    build = GRAMMARS.compile

    def counted(grammar: str) -> Matcher:
        compiled.append(grammar)
        return build(grammar)

    monkeypatch.setattr(GRAMMARS, "compile", counted)
    for index in (1, 2, 1, 1, 2):
        await composer.compose("start: @output", output("json", {"const": index}))
    assert len(compiled) == 2
    for index in range(200):
        await composer.compose("start: @output", output("json", {"const": index}))
    assert len(composer._good) == 64


@pytest.mark.parametrize("at", [0, 17, 250, 499])
def test_a_fault_is_found_among_many_properties(at: int) -> None:
    properties: dict[str, Any] = {f"p{index}": {"type": "string"} for index in range(500)}
    properties[f"p{at}"] = {"type": "object", "properties": {"a": {"not": {}}}}
    fault = schema_fault({"type": "object", "properties": properties})
    assert fault is not None
    assert fault.path == ("properties", f"p{at}", "properties", "a", "not")


def test_a_schema_beyond_all_bounds_is_not_searched() -> None:
    with pytest.raises(GrammarError, match="longer"):
        schema_fault({"description": "x" * (1 << 20)})


def test_schemas_as_agents_send_them_can_be_enforced(model_path: Path) -> None:
    """Tool parameters with what usual clients put in them."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Edit",
        "properties": {
            "path": {"type": "string", "description": "where", "minLength": 1, "maxLength": 65536},
            "mode": {"enum": ["read", "write"], "default": "read"},
            "count": {"type": "integer", "exclusiveMinimum": 0, "examples": [1]},
            "who": {"anyOf": [{"type": "string", "pattern": r"^(\d+|imap:[A-Za-z0-9_-]+)$"}, {"type": "null"}]},
            "more": {"type": "object", "properties": {}},
            "when": {"type": "string", "format": "date-time"},
            "list": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    model = Model(model_path, vocab_only=True)
    assert schema_fault(schema) is None
    assert Grammars(model.vocabulary).compile(json.dumps({"grammars": [{"json_schema": schema}]})).mask().any()
    model.close()
