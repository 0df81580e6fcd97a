"""The parser of models that write thinking and calls between marks in their text."""

from collections.abc import Mapping

from services.gateway.formats.reader import SoughtMarks, Steps
from services.gateway.formats.sink import PartSink
from services.gateway.formats.step_parser import StepParser
from services.gateway.formats.syntax import CallSyntax
from services.gateway.formats.thinking import ThinkingSpan
from services.gateway.requests.types import Tool


class TaggedParser(StepParser):
    """Looks for thinking at the start and after other thinking or a call.

    Whatever does not become a call is text, and nothing is repeated. Only the beginning of a call with which the answer
    ends, because it was cut off there, is neither: it is no part of what the model says.
    """

    def __init__(
        self,
        sink: PartSink,
        span: ThinkingSpan | None,
        syntax: CallSyntax | None,
        tools: Mapping[str, Tool],
        *,
        opened: bool,
    ) -> None:
        self._span = span
        self._syntax = syntax
        self._tools = tools
        self._openers = SoughtMarks(syntax.openers) if syntax is not None else None
        super().__init__(sink, opened=opened)

    def _answer(self, opened: bool) -> Steps[None]:
        if opened and self._span is not None:
            yield from self._thought(self._span)
        fresh = True
        while not self._reader.exhausted:
            if not fresh or not (yield from self._thinks()):
                fresh = yield from self._prose(fresh)

    def _prose(self, fresh: bool) -> Steps[bool]:
        """Read text up to and including the next call; True if there is one and it is complete."""
        syntax, openers = self._syntax, self._openers
        if syntax is None or openers is None:
            yield from self._reader.rest(self._sink.final)
            return False
        opener = ""
        if fresh and syntax.bare:
            opener = yield from self._reader.next_is(syntax.bare)
        if opener:
            self._reader.hold()
        else:
            opener = yield from self._reader.until(openers, self._sink.text, cuts=True)
            self._reader.hold(opener)
        complete = bool(opener) and (yield from syntax.read(self._reader, self._sink, self._tools, opener))
        held = self._reader.release()
        if complete or not (self._reader.exhausted and syntax.begins(held, self._tools)):
            self._sink.text(held)
        return complete

    def _thinks(self) -> Steps[bool]:
        """Read the thinking that begins here, if any does."""
        self._sink.text((yield from self._reader.spaces()))
        if self._span is None or not (yield from self._reader.next_is(self._span.start)):
            return False
        yield from self._thought(self._span)
        return True

    def _thought(self, span: ThinkingSpan) -> Steps[None]:
        self._sink.thought("")
        # Some models repeat the mark that their prompt ends with.
        self._sink.thought((yield from self._reader.spaces()))
        if (yield from self._reader.next_is(span.start)):
            self._reader.take(len(span.start))
        yield from self._reader.until(SoughtMarks((span.end,)), self._sink.thought)
        self._sink.text("")
