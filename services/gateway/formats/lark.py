"""Grammars in llguidance's dialect of Lark, built rule by rule.

Only a control token can write the text for which it stands; any other mark is plain text
(github.com/guidance-ai/llguidance, docs/syntax.md).
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

TokenOf = Callable[[str], int | None]  # the id of the control token with exactly this text
SPACED: Final = (", ", ": ")  # as chat templates write JSON
_ANY: Final = "(?s:.*)"


class Lark:
    """The rules of one grammar. Methods return expressions, to be used in other rules."""

    def __init__(self, token: TokenOf) -> None:
        self._token = token
        self._rules: dict[str, str] = {}

    def mark(self, text: str) -> str:
        token = self._token(text)
        return literal(text) if token is None else f"<[{token}]>"

    def rule(self, name: str, body: str) -> str:
        """A rule of that name; `name` may carry options in brackets."""
        self._rules[name] = body
        return name.partition("[")[0]

    def text(self, *without: str, beginning: str = "") -> str:
        """Any text that holds none of these marks and does not begin, but for white space, as the expression says.

        It excludes the text of control tokens too, because a parser cannot tell that text from the token.
        """
        body = f"/{_ANY}/"
        if without:
            body += f" & ~/{_ANY}({'|'.join(map(expression, without))}){_ANY}/"
        if beginning:
            body += rf" & ~/\s*{beginning}{_ANY}/"
        known = next((name for name, other in self._rules.items() if other == body), None)
        return known or self.rule(f"TEXT_{len(self._rules)}", body)

    def through(self, mark: str, text: str = "") -> str:
        """Text (`text`, or any) up to and including the first of these marks."""
        text = text or self.text(mark)
        if self._token(mark) is not None:
            return f"{text} {self.mark(mark)}"
        return self.rule(f"through_{len(self._rules)}[lazy]", f"{text} {literal(mark)}")

    def span(self, start: str, end: str) -> str:
        """Any text between two marks, with the marks."""
        if self._token(start) is None and self._token(end) is None:
            return self.rule(f"span_{len(self._rules)}[lazy]", f"{literal(start)} {self.text(end)} {literal(end)}")
        return f"{self.mark(start)} {self.through(end)}"

    def source(self, start: str) -> str:
        return "\n".join([f"start: {start}", *(f"{name}: {body}" for name, body in self._rules.items())]) + "\n"


def expression(text: str) -> str:
    """The regular expression of a text."""
    return re.escape(text).replace("/", r"\/")


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def json_value(schema: Mapping[str, Any], separators: tuple[str, str] = SPACED) -> str:
    """A value of that schema on one line: a small model that may choose its white space fills pages with it."""
    style = {"whitespace_flexible": False, "item_separator": separators[0], "key_separator": separators[1]}
    return f"%json {json.dumps({'x-guidance': style, **schema})}"
