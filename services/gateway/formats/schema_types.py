"""Finds an argument's JSON type, for formats that write values as bare text."""

import json
from collections.abc import Mapping
from typing import Any, Final

from services.gateway.formats.schema_faults import pointer, resolve

_ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_DEPTH: Final = 16  # nesting of references and alternatives; a schema may refer to itself
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}  # models that think in Python


def kinds(schema: Mapping[str, Any], key: str) -> frozenset[str]:
    """The JSON types that the schema allows for the property; all of them where it does not say."""
    properties = schema.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return _kinds(found, schema, _DEPTH)


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not depth:
        return _ALL
    allowed = _ALL
    declared = schema.get("type")
    if isinstance(declared, str):
        allowed = frozenset({declared})
    elif isinstance(declared, list):
        allowed = frozenset(kind for kind in declared if isinstance(kind, str))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        allowed &= frozenset(map(_kind, values))
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(keyword), list):
            allowed &= frozenset().union(*(_kinds(option, root, depth - 1) for option in options))
    for part in schema.get("allOf") or ():
        allowed &= _kinds(part, root, depth - 1)
    if isinstance(reference := schema.get("$ref"), str):
        within = reference == "#" or reference.startswith("#/")
        allowed &= _kinds(resolve(root, pointer(reference)) if within else None, root, depth - 1)
    return allowed or _ALL


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    for kind, types in (("number", float), ("string", str), ("array", list)):
        if isinstance(value, types):
            return kind
    return "object"


def typed(text: str, allowed: frozenset[str]) -> str:
    """The JSON text of a value written as bare text: as JSON where that has an allowed type, else as a string."""
    bare = text.strip()
    bare = _WORDS.get(bare, bare)
    try:
        value = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    kind = _kind(value)
    if kind == "string" and "string" in allowed:
        return json.dumps(text, ensure_ascii=False)  # quotation marks in a string belong to it
    if kind in allowed or (kind == "integer" and "number" in allowed) or (kind == "number" and "integer" in allowed):
        return bare
    return json.dumps(text, ensure_ascii=False)


def _refuse(name: str) -> None:
    raise ValueError(name)
