"""Grammars in llguidance's dialect of Lark, built rule by rule.

What a control token stands for can only be written as that token; any other mark is text like the rest
(github.com/guidance-ai/llguidance, docs/syntax.md).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.gateway.requests import Tool

TokenOf = Callable[[str], int | None]  # the id of the control token with exactly this text
TEXT: Final = "TEXT"
SPACED: Final = (", ", ": ")  # as chat templates write JSON
_ANY: Final = "(?s:.*)"


class Lark:
    """The rules of one grammar. Methods return expressions, to be used in other rules."""

    def __init__(self, token: TokenOf) -> None:
        self._token = token
        self._rules: dict[str, str] = {TEXT: f"/{_ANY}/"}

    def mark(self, text: str) -> str:
        token = self._token(text)
        return literal(text) if token is None else f"<[{token}]>"

    def is_token(self, text: str) -> bool:
        """Whether free text cannot hold the mark, because it is a control token."""
        return self._token(text) is not None

    def rule(self, name: str, body: str) -> str:
        """A rule of that name; `name` may carry options in brackets."""
        self._rules[name] = body
        return name.partition("[")[0]

    def through(self, mark: str, text: str = TEXT) -> str:
        """Any text up to and including the first such mark."""
        if self.is_token(mark):
            return f"{text} {self.mark(mark)}"
        return self.rule(f"through_{len(self._rules)}[lazy]", f"{text} {literal(mark)}")

    def text_without(self, name: str, beginning: str) -> str:
        """Any text that does not begin so (a regular expression), white space before it aside."""
        return self.rule(name, rf"/{_ANY}/ & ~/\s*{beginning}{_ANY}/")

    def source(self, start: str) -> str:
        return "\n".join([f"start: {start}", *(f"{name}: {body}" for name, body in self._rules.items())]) + "\n"


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def json_value(schema: Mapping[str, Any], separators: tuple[str, str] = SPACED) -> str:
    """A value of that schema on one line: with white space of its choice a small model fills pages."""
    style = {"whitespace_flexible": False, "item_separator": separators[0], "key_separator": separators[1]}
    return f"%json {json.dumps({'x-guidance': style, **schema})}"


def call_object(tool: Tool, arguments: str) -> str:
    """A call as one JSON object; `arguments` is the key of its arguments."""
    head = f'{{"name": {literal(tool.name)}, "{arguments}": '
    return f'{literal(head)} {json_value(tool.parameters)} "}}"'
