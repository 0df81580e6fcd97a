"""Grammars of a tool call: its arguments, and a call as one JSON object."""

from services.gateway.formats.lark import SPACED, json_value, literal
from services.gateway.formats.quoted_lark import quoted
from services.gateway.requests.types import INPUT, Tool


def arguments(tool: Tool, separators: tuple[str, str] = SPACED) -> str:
    """The arguments of a call as a JSON object. Raises `GrammarError` if a tool's grammar cannot be held in JSON."""
    if not tool.grammar:
        return json_value(tool.parameters, separators)
    begin, end = literal('{"' + INPUT + '"' + separators[1] + '"'), literal('"}')
    return f"{begin} {nested(quoted(tool.grammar))} {end}"


def nested(source: str) -> str:
    """What a Lark grammar matches, as an expression; its names cannot clash with those around it."""
    return f"%lark {{\n{source}\n}}"


def call_object(tool: Tool, key: str, *, words: bool = False) -> str:
    """A call as one JSON object; `key` is that of its arguments.

    `words`: made of the small words of any JSON, for places where another object may stand: the lexer takes the longest
    word, so one long word would always win. Beside free text it must be one long word, for the same reason.
    """
    head = ["{", '"name"', ": ", literal(tool.name), ", ", f'"{key}"', ": "]
    begin = " ".join(map(literal, head)) if words else literal("".join(head))
    return f'{begin} {arguments(tool)} "}}"'
