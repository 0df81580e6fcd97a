"""What clients send in several forms, as text: the content of a message, and the arguments of a call. Pure."""

import json
from collections.abc import Mapping
from functools import partial

from pydantic_core import PydanticCustomError


def as_text(value: object, fields: Mapping[str, str], only: str) -> object:
    """The texts of the parts on lines of their own; null is no text, and other content stays as it is.

    `fields` says in which field each type of part has its text, and `only` what a refusal of other types ends with.
    """
    if value is None:
        return ""
    return "\n".join(map(partial(_part_text, fields=fields, only=only), value)) if isinstance(value, list) else value


def _part_text(part: object, fields: Mapping[str, str], only: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise PydanticCustomError("part", "a content part must be an object with 'type' and 'text'")
    kind = str(part.get("type"))[:64]
    field = fields.get(kind)
    if field is None:
        sentence = "content parts of type '{kind}' are not supported, {only}"
        raise PydanticCustomError("part", sentence, {"kind": kind, "only": only})
    text = part.get(field)
    if not isinstance(text, str):
        sentence = "a content part of type '{kind}' must have a string '{field}'"
        raise PydanticCustomError("part", sentence, {"kind": kind, "field": field})
    return text


def as_arguments(value: object) -> object:
    """Arguments as JSON text; some clients send the object, or none."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value or "{}"
