"""The formats of models that write thinking and calls between marks in their text."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from services.gateway.formats.enforcing import enforceable_tools
from services.gateway.formats.format import Format, callable_tools
from services.gateway.formats.lark import Lark, TokenOf, expression
from services.gateway.formats.parts import PartParser, PlainParser
from services.gateway.formats.sink import NewId, PartSink, random_id
from services.gateway.formats.syntax import CallSyntax
from services.gateway.formats.tagged_parser import TaggedParser
from services.gateway.formats.thinking import ThinkingStyle
from services.gateway.requests.types import Tool, ToolChoice

_GAP: Final = r"/\n{0,2}/"  # white space before a call or output: what models write, at most
# For models whose chat template knows no tools: they are told to write calls in Hermes' form.
_INSTRUCTIONS: Final = (
    "You can call these functions:\n<tools>\nLISTED\n</tools>\n\n"
    "To call one, answer with its name and its arguments in this form, once for each call:\n"
    '<tool_call>\n{"name": "function name", "arguments": {"parameter": "value"}}\n</tool_call>\n\n'
    "What it returned is then told to you between <tool_response> and </tool_response>. "
    "Answer in plain text if no function helps."
)
_ID_LENGTH: Final = 9  # the shape that Mistral's templates require


class TaggedFormat(Format):
    """Thinking as `thinking` has it, then text with calls as `syntax` has them.

    `takes_tools`: the chat template explains tools. Without it the calls must be Hermes'.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        thinking: ThinkingStyle,
        token: TokenOf,
        *,
        takes_tools: bool = True,
        short_ids: bool = False,
        new_id: NewId = random_id,
    ) -> None:
        super().__init__(thinking)
        self.name = syntax.name
        self.span = thinking.span
        self.marks = (*syntax.marks, *((self.span.start, self.span.end) if self.span is not None else ()))
        self.takes_tools = takes_tools
        self._syntax = syntax
        self._token = token
        self._short_ids = short_ids
        self._new_id = new_id

    def instructions(self, tools: Sequence[Tool]) -> str:
        if self.takes_tools or not tools:
            return ""
        listed = "\n".join(json.dumps(tool.openai()["function"], ensure_ascii=False) for tool in tools)
        return _INSTRUCTIONS.replace("LISTED", listed)

    def call_id(self, id: str) -> str:
        if not self._short_ids or (len(id) == _ID_LENGTH and id.isascii() and id.isalnum()):
            return id
        return hashlib.sha256(id.encode()).hexdigest()[:_ID_LENGTH]

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        allowed = callable_tools(tools, choice)
        if not allowed and self.span is None:
            return PlainParser()
        sink = PartSink(allowed, parallel=choice.parallel, new_id=self._new_id)
        return TaggedParser(sink, self.span, self._syntax if allowed else None, allowed, opened=opened)

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        allowed = enforceable_tools(tools, choice)
        if not allowed and not output and not tools:
            return ""
        lark = Lark(self._token)
        before = self._before(lark, opened)
        if not allowed and not output:  # the model may still call a tool that the prompt describes
            return lark.source(f"{before} {lark.text(*self._syntax.openers)}")
        if not allowed:
            return lark.source(f"{before} @output")
        if choice.mode == "required":
            return lark.source(f"{before} ({self._syntax.calls(lark, allowed, parallel=choice.parallel)})")
        if output:
            return lark.source(f"{before} (@output | {self._syntax.calls(lark, allowed, parallel=choice.parallel)})")
        beginning = expression(self.span.start) if self.span is not None and not opened else ""
        mixed = self._syntax.mixed(lark, allowed, parallel=choice.parallel, beginning=beginning)
        return lark.source(f"{before} ({mixed})")

    def _before(self, lark: Lark, opened: bool) -> str:
        """The thinking that may come first, or must come if the prompt has begun it."""
        span = self.span
        if span is None:
            return ""
        if opened:
            return f"{lark.through(span.end)} {_GAP}"
        return f"({lark.span(span.start, span.end)} {_GAP})?"
