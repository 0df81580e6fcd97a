"""What all syntaxes of tool calls have in common: their grammars."""

from collections.abc import Sequence
from typing import Protocol

from services.gateway.formats.lark import Lark
from services.gateway.formats.tagged_parser import CallReader
from services.gateway.requests.types import Tool


class CallSyntax(CallReader, Protocol):
    """How to read calls, and their grammar. `marks` are the texts that may be control tokens."""

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> tuple[str, ...]: ...
    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Calls and nothing else: one, or any number if `parallel`."""

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, beginning: str) -> str:
        """Text, which does not begin with the expression `beginning`, with calls in it or without."""


class OpenedCalls:
    """The grammar of calls that a mark opens wherever it stands. `separator` stands between two calls."""

    openers: tuple[str, ...]
    opener: str  # the one that models are trained to write
    separator: str

    def body(self, lark: Lark, tools: Sequence[Tool]) -> str:
        """What follows the opener."""
        raise NotImplementedError

    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        one = lark.rule("call", f"{lark.mark(self.opener)} {self.body(lark, tools)}")
        return f"{one} ({self.separator} {one})*" if parallel else one

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, beginning: str) -> str:
        body = lark.rule("body", self.body(lark, tools))
        begin = lark.text(*self.openers, beginning=beginning)
        first = f"{lark.through(self.opener, begin)} {body}"
        if not parallel:
            return f"{begin} | {first}"
        text = lark.text(*self.openers)
        return f"{begin} | {first} ({lark.through(self.opener, text)} {body})* {text}"
