"""What all syntaxes of tool calls have in common: how to find and read calls, and their grammars."""

from collections.abc import Mapping, Sequence

from services.gateway.formats.lark import Lark
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink
from services.gateway.requests.types import Tool


class CallSyntax:
    """How a model writes calls; the grammar is that of calls that a mark opens wherever it stands.

    `openers` begin a call anywhere, and models are trained to write the first of them; `bare` begins one only where
    nothing else has begun. `marks` are the texts that may be control tokens. `separator` stands between two calls.
    """

    name: str
    openers: tuple[str, ...]
    bare = ""
    marks: tuple[str, ...]
    separator = ""

    def read(self, reader: Reader, sink: PartSink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        """Read from after the opener; False if there is no complete call. The opener `bare` has not been read.

        Releases `reader` once it is certain that a call begins.
        """
        raise NotImplementedError

    def begins(self, text: str, tools: Mapping[str, Tool]) -> bool:
        """Whether a text, from the opener up to where the answer was cut off, can be nothing but part of a call."""
        return True

    def body(self, lark: Lark, tools: Sequence[Tool]) -> str:
        """What follows the opener."""
        raise NotImplementedError

    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Calls and nothing else: one, or any number if `parallel`."""
        one = lark.rule("call", f"{lark.mark(self.openers[0])} {self.body(lark, tools)}")
        return f"{one} ({self.separator} {one})*" if parallel else one

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, beginning: str) -> str:
        """Text, which does not begin with the expression `beginning`, with calls in it or without."""
        body = lark.rule("body", self.body(lark, tools))
        begin = lark.text(*self.openers, beginning=beginning)
        first = f"{lark.through(self.openers[0], begin)} {body}"
        if not parallel:
            return f"{begin} | {first}"
        text = lark.text(*self.openers)
        return f"{begin} | {first} ({lark.through(self.openers[0], text)} {body})* {text}"
