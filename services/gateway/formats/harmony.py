"""gpt-oss's format: messages with a channel each. Reasoning goes to `analysis`, calls go through `commentary` to
`functions.<name>`, answers to `final` (OpenAI's harmony specification, github.com/openai/harmony).

The answer begins behind `<|start|>assistant`:
`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
"""

import re
from collections.abc import Sequence
from typing import Final

from services.gateway.formats.call_grammar import arguments
from services.gateway.formats.enforcing import enforceable_tools
from services.gateway.formats.format import Format, callable_tools
from services.gateway.formats.json_call import pass_object
from services.gateway.formats.lark import Lark, TokenOf, literal
from services.gateway.formats.parts import PartParser
from services.gateway.formats.reader import SoughtMarks, Steps
from services.gateway.formats.sink import NewId, PartSink, random_id
from services.gateway.formats.step_parser import StepParser
from services.gateway.formats.thinking import ThinkingSpan, ThinkingStyle
from services.gateway.requests.types import Tool, ToolChoice

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
CONSTRAIN: Final = "<|constrain|>"
END: Final = "<|end|>"
CALL: Final = "<|call|>"
RETURN: Final = "<|return|>"
MARKS: Final = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)

_HEADER_END: Final = SoughtMarks((MESSAGE, END, CALL, RETURN))
_ENDS: Final = (START, END, CALL, RETURN, CHANNEL)
_BODY_END: Final = SoughtMarks(_ENDS)
_RECIPIENT: Final = re.compile(r"to=(?:functions\.)?([^\s<]+)")


class HarmonyFormat(Format):
    """An answer's last message is `final` or one call: its end mark ends the generation."""

    name = "harmony"
    marks = MARKS
    takes_tools = True

    def __init__(self, thinking: ThinkingStyle, token: TokenOf, new_id: NewId = random_id) -> None:
        super().__init__(thinking)
        self._token = token
        self._new_id = new_id
        self.span = ThinkingSpan(f"{CHANNEL}analysis{MESSAGE}", END, END)

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        sink = PartSink(callable_tools(tools, choice), parallel=choice.parallel, new_id=self._new_id)
        return HarmonyParser(sink, opened=opened)

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        allowed = enforceable_tools(tools, choice)
        if not allowed and not output:
            return ""
        lark = Lark(self._token)
        channel, message = lark.mark(CHANNEL), lark.mark(MESSAGE)
        again = f'{lark.mark(START)} "assistant"'
        body = lark.text(*_ENDS)
        rest = f"{lark.through(END, body)} {again}"
        thought = lark.rule("thought", f'{channel} "analysis" {message} {rest}')
        before, ends = thought, []
        if choice.mode != "required":
            ends.append(f'{channel} "final" {message} {"@output" if output else body}')
            preamble = lark.rule("preamble", f'{channel} "commentary" {message} {rest}')
            before = f"({thought} | {preamble})" if allowed else thought
        if allowed:
            ends.append(self._call(lark, allowed))
        return lark.source(f"{rest if opened else ''} {before}* ({' | '.join(ends)})")

    def _call(self, lark: Lark, tools: Sequence[Tool]) -> str:
        named = (
            f"{literal(tool.name + ' ')} {lark.mark(CONSTRAIN)} "
            f'"json" {lark.mark(MESSAGE)} {arguments(tool, (",", ":"))}'
            for tool in tools
        )
        head = f'{lark.mark(CHANNEL)} "commentary to=functions."'
        return f"{head} {lark.rule('named', ' | '.join(named))}"


class HarmonyParser(StepParser):
    """Reads the channel and the recipient from a header and drops its rest.

    A call of a function that may not be called is text, as is text without a header.
    """

    def _answer(self, opened: bool) -> Steps[None]:
        if opened:
            mark = yield from self._thought()
        elif (yield from self._reader.next_is(CHANNEL, START, MESSAGE, " to=")):
            mark = START
        else:
            mark = yield from self._reader.until(_BODY_END, self._sink.text)
        while not self._reader.exhausted:
            if mark in (START, CHANNEL):
                mark = yield from self._message(mark)
            else:
                mark = yield from self._between()

    def _between(self) -> Steps[str]:
        """After a message's end; text that no header introduces is text."""
        yield from self._reader.spaces()
        return (yield from self._reader.until(_BODY_END, self._sink.text))

    def _message(self, mark: str) -> Steps[str]:
        """Read the rest of the header and the body, and return the mark after it."""
        header: list[str] = [mark]
        end = yield from self._reader.until(_HEADER_END, header.append)
        if end != MESSAGE:
            return end
        text = "".join(header)
        recipient = _RECIPIENT.search(text)
        if recipient is not None and self._sink.knows(recipient[1]):
            return (yield from self._call(recipient[1]))
        channel = text.partition(CHANNEL)[2].split(maxsplit=1)
        if channel[:1] == ["analysis"]:
            return (yield from self._thought())
        self._sink.separate()
        return (yield from self._reader.until(_BODY_END, self._sink.text))

    def _thought(self) -> Steps[str]:
        self._sink.thought("")
        mark = yield from self._reader.until(_BODY_END, self._sink.thought)
        self._sink.text("")
        return mark

    def _call(self, name: str) -> Steps[str]:
        yield from self._reader.spaces()
        if (yield from self._reader.next_is("{")):
            self._sink.begin(name)
            if (yield from pass_object(self._reader, self._sink.arguments)):
                self._sink.end()
        else:
            self._sink.separate()
        return (yield from self._reader.until(_BODY_END, self._sink.text))
