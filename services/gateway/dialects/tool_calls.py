"""Tool calls as chat templates expect them, and their ids: each dialect puts its own prefix before the parser's id, and
this removes all of them."""

import json
from typing import Final

from services.gateway.requests.types import INPUT

OPENAI: Final = "call_"
ANTHROPIC: Final = "toolu_"
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


def bare(call_id: str) -> str:
    """The id without our prefix; an id that a client made stays as it is."""
    for prefix in (OPENAI, ANTHROPIC):
        rest = call_id.removeprefix(prefix)
        if rest != call_id and rest and _HEXADECIMAL.issuperset(rest):
            return rest
    return call_id


def for_template(call_id: str, name: str, arguments: str) -> dict[str, object]:
    """A call that the assistant made; `arguments` is JSON text."""
    return {"id": bare(call_id), "type": "function", "function": {"name": name, "arguments": arguments}}


def input_arguments(text: str) -> str:
    """The arguments of a custom tool's call as JSON text: the model knows such a tool as a function with one string."""
    return json.dumps({INPUT: text}, ensure_ascii=False)
