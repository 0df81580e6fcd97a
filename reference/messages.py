"""The page of messages: every type that crosses Redis as MessagePack, with its fields, from the types themselves."""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from enum import Enum
from inspect import cleandoc
from textwrap import dedent
from typing import Any, Final, get_args

import msgspec

from reference.markdown import code, page, table
from services.gateway.storage.kept_turns import KeptTurn
from services.gateway.storage.records import Origin
from shared.wire import codec
from shared.wire.messages import Announced, Chunk, Hint, Job, Proposal

MESSAGES: Final[tuple[type, ...]] = (Job, Chunk, *get_args(Hint), Proposal, *get_args(Announced))
OF_GATEWAYS: Final[tuple[type, ...]] = (KeptTurn, Origin)  # written and read by gateways alone

_COLUMNS: Final = ("place", "field", "type", "default", "meaning")


def text() -> str:
    """The page."""
    parts = [kind for kind in _parts(MESSAGES) if kind not in MESSAGES]
    return page(
        "Messages",
        f"A message is one byte, the version ({codec.VERSION}), and then one MessagePack array: the message's tag at"
        " place 0 and its fields at the places below. A reader ignores places beyond those that it knows; a writer may"
        f" leave out fields from the end that have a default. A message of more than {codec.MAX_BYTES >> 20} MiB is"
        " refused. [The wire](../wire.md) says under which key each message lies. Types in `code` are described"
        " further down.",
        *(_section(kind) for kind in MESSAGES),
        "## Parts of messages",
        "These stand inside messages and have no version byte and no tag.",
        *(_section(kind, "###") for kind in parts),
        "## Values of gateways",
        "Only gateways write and read these. They have no version byte and no tag.",
        *(_section(kind, "###") for kind in OF_GATEWAYS),
    )


def _section(kind: type, heading: str = "##") -> str:
    told = msgspec.inspect.type_info(kind)
    tag = getattr(told, "tag", None)
    shape = (
        "On the wire this is a map from each field's name to its value."
        if isinstance(told, msgspec.inspect.DataclassType)
        else ""
    )
    meanings = _meanings(kind)
    first = 0 if tag is None else 1
    rows = [] if tag is None else [("0", "", "text", "", f"always {code(tag)}")]
    for place, field in enumerate(told.fields, start=first):  # type: ignore[attr-defined]
        where = "" if shape else str(place)
        rows.append((where, code(field.name), _type(field.type), _default(field), meanings.get(field.name, "")))
    parts = [f"{heading} {kind.__name__}", cleandoc(kind.__doc__ or ""), shape, table(_COLUMNS, rows)]
    return "\n\n".join(part for part in parts if part)


def _parts(kinds: tuple[type, ...]) -> list[type]:
    """Every class that values of these types may hold, in the order in which the fields name them."""
    found: dict[type, None] = {}
    waiting = [msgspec.inspect.type_info(kind) for kind in kinds]
    while waiting:
        told = waiting.pop(0)
        for inner in _inner(told):
            if hasattr(inner, "cls") and not isinstance(inner, msgspec.inspect.EnumType):
                if inner.cls in found:
                    continue
                found[inner.cls] = None
            waiting.append(inner)
    return list(found)


def _inner(told: Any) -> Iterator[Any]:
    """The types that one type is made of."""
    yield from (field.type for field in getattr(told, "fields", ()))
    yield from getattr(told, "types", ())
    yield from getattr(told, "item_types", ())
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(told, name):
            yield getattr(told, name)


def _type(told: Any) -> str:
    """A type in words, with the bounds that the codec checks."""
    match told:
        case msgspec.inspect.BoolType():
            return "boolean"
        case msgspec.inspect.NoneType():
            return "nil"
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            name = "integer" if isinstance(told, msgspec.inspect.IntType) else "float"
            return " ".join([name, *_bounds(told)])
        case msgspec.inspect.StrType():
            return (
                "text" + _lengths(told, "characters") + (f" that matches {code(told.pattern)}" if told.pattern else "")
            )
        case msgspec.inspect.EnumType():
            return "text: " + _one_of(member.value for member in told.cls)
        case msgspec.inspect.LiteralType():
            return "text: " + _one_of(told.values)
        case msgspec.inspect.TupleType():
            return f"array ({', '.join(map(_type, told.item_types))})"
        case msgspec.inspect.VarTupleType():
            return "list" + _lengths(told, "items") + f": {_type(told.item_type)}"
        case msgspec.inspect.DictType():
            return f"map from {_type(told.key_type)} to {_type(told.value_type)}"
        case msgspec.inspect.UnionType():
            return " or ".join(map(_type, told.types))
        case _:
            return code(told.cls.__name__)


def _bounds(told: Any) -> list[str]:
    signs = (("from", told.ge), ("above", told.gt), ("to", told.le), ("below", told.lt))
    return [f"{word} {bound:.10g}" for word, bound in signs if bound is not None]


def _lengths(told: Any, unit: str) -> str:
    low, high = told.min_length, told.max_length
    if low is None and high is None:
        return ""
    return f", {f'{low} to {high} {unit}' if low and high else f'at least {low}' if low else f'at most {high} {unit}'}"


def _one_of(values: Any) -> str:
    return ", ".join(code(f'"{value}"') for value in values)


def _default(field: Any) -> str:
    """The value that a missing field has, as it stands on the wire; empty where the field is required."""
    if field.required:
        return ""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return f"{code(type(value).__name__)} of defaults"
    value = value.value if isinstance(value, Enum) else value
    return code(msgspec.json.encode(value).decode()) if value is not None else "nil"


def _meanings(kind: type) -> dict[str, str]:
    """What the comment beside each field says, or the one in the line above it."""
    source = dedent(inspect.getsource(kind))
    comments = {
        token.start[0]: (token.string.removeprefix("#").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    meanings = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own = [comments[line][0] for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in comments]
            above = comments.get(node.lineno - 1, ("", False))
            meanings[node.target.id] = " ".join(own) or (above[0] if above[1] else "")
    return meanings
