"""JSON Schemas as clients send them: a walk over the schemas in one, and what the gateway puts right in each. Pure.

Keywords: JSON Schema 2020-12 and draft 4, https://json-schema.org/draft/2020-12/json-schema-core
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SINGLES: Final = frozenset(
    {"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"}
    | {"propertyNames", "not", "if", "then", "else"}
)
_VALUES: Final = frozenset({"const", "default", "example", "examples"})  # keywords for which null is a value

Path = tuple[str, ...]  # steps from a schema's root
JsonSchema = Mapping[str, Any]


def mapped(schema: JsonSchema, change: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
    """The schema after `change` of every schema in it, the inner ones first."""

    def inner(part: Any) -> Any:
        return mapped(part, change) if isinstance(part, Mapping) else part

    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, Mapping) and keyword in MAPS:
            found[keyword] = {name: inner(part) for name, part in value.items()}
        elif isinstance(value, list) and keyword in LISTS:
            found[keyword] = [inner(part) for part in value]
        else:
            found[keyword] = inner(value) if keyword in SINGLES else value
    return change(found)


def without_nulls(schema: object) -> object:
    """The schema without keywords that are null, which mean that they are absent; anything else as it is.

    Go's clients send `"required": null` for an empty list, and `"properties": null` for no properties.
    """
    return mapped(schema, _present) if isinstance(schema, Mapping) else schema


def _present(node: JsonSchema) -> JsonSchema:
    found = {name: value for name, value in node.items() if value is not None or name in _VALUES}
    for keyword in MAPS & found.keys():
        if isinstance(parts := found[keyword], Mapping):
            found[keyword] = {name: {} if part is None else part for name, part in parts.items()}
    return found


# What `strict` makes of a function without a schema of its arguments.
NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
SchemaObject = Annotated[dict[str, Any], BeforeValidator(without_nulls)]


def strict_fault(schema: JsonSchema) -> str:
    """Why the schema does not keep OpenAI's rule for `strict: true`; "" if it does.

    Every object must forbid what it does not declare. OpenAI also wants every property in `required`; here a property
    may be optional, because the grammar can leave it out. Source: OpenAI, "Structured outputs", "Supported schemas".
    """
    objects = dict(_objects(schema, ()))
    if "$ref" not in schema:
        objects[()] = schema
    at = next((path for path, node in objects.items() if node.get("additionalProperties") is not False), None)
    if at is None:
        return ""
    where = f"'{'.'.join(at)[:200]}'" if at else "the outermost one"
    return f"'strict' needs 'additionalProperties' to be false in every object, also in {where}"


def refuse_open(schema: JsonSchema | None) -> None:
    """Raise pydantic's error if the schema of a `strict` function leaves an object open."""
    fault = strict_fault(schema) if schema is not None else ""
    if fault:
        raise PydanticCustomError("strict", "{fault}", {"fault": fault})


def parameters(schema: JsonSchema | None, strict: bool | None) -> JsonSchema:
    """The schema of a function's arguments, of which a `strict` function without one has none; {}: any object."""
    return schema if schema is not None else NO_PARAMETERS if strict else {}


def _objects(node: Any, path: Path) -> Iterator[tuple[Path, JsonSchema]]:
    """Every schema of objects in `node`, itself included."""
    if not isinstance(node, Mapping):
        return
    kind = node.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in node:
        yield path, node
    for keyword, value in node.items():
        if isinstance(value, Mapping) and keyword in MAPS:
            for name, part in value.items():
                yield from _objects(part, (*path, keyword, name))
        elif isinstance(value, list) and keyword in LISTS:
            for index, part in enumerate(value):
                yield from _objects(part, (*path, keyword, str(index)))
        elif keyword in SINGLES:
            yield from _objects(value, (*path, keyword))
