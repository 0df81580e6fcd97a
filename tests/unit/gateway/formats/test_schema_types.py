"""Types of arguments, and values written as bare text."""

from typing import Any

import pytest

from services.gateway.formats.schema_types import kinds, typed

_ALL = {"string", "number", "integer", "boolean", "null", "object", "array"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": ["a", 1]}, {"string", "integer"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "number"}, {"enum": [[]]}]}, {"number", "array"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/color"}, {"string"}),
        ({"$ref": "#/$defs/again"}, _ALL),
        ({"$ref": "#/nowhere"}, _ALL),
        ({}, _ALL),
        (True, _ALL),
        ({"type": "string", "enum": [1]}, _ALL),
    ],
)
def test_types_are_found_wherever_the_schema_says_them(schema: Any, expected: set[str]) -> None:
    root = {
        "properties": {"a": schema},
        "$defs": {"color": {"enum": ["red"]}, "again": {"$ref": "#/$defs/again"}},
    }
    assert kinds(root, "a") == expected
    assert kinds(root, "b") == _ALL
    assert kinds({"properties": None}, "a") == _ALL


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("12", {"integer"}, "12"),
        (" 12 ", {"number"}, "12"),
        ("12", {"string"}, '"12"'),
        ("12", {"string", "null"}, '"12"'),
        ("null", {"string", "null"}, "null"),
        ("True", {"boolean"}, "true"),
        ("None", {"string", "null"}, "null"),
        ('"quoted"', {"string"}, '"\\"quoted\\""'),
        ('"quoted"', _ALL, '"\\"quoted\\""'),
        ('{"a": [1]}', {"object"}, '{"a": [1]}'),
        ("{'a': 1}", {"object"}, "\"{'a': 1}\""),
        ("NaN", {"number"}, '"NaN"'),
        ("1" * 5000, {"integer"}, f'"{"1" * 5000}"'),
        ("[" * 100_000, {"array"}, f'"{"[" * 100_000}"'),
        ("", {"integer"}, '""'),
    ],
)
def test_bare_text_is_json_where_its_type_is_allowed_and_else_a_string(
    text: str, allowed: set[str], expected: str
) -> None:
    assert typed(text, frozenset(allowed)) == expected
