"""A parser that reads an answer in steps, and outputs what the steps put into the sink."""

from services.gateway.formats.parts import Part
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink


class StepParser:
    """Pushes text into `_reader` and runs `_answer` as far as it goes."""

    def __init__(self, sink: PartSink, *, opened: bool) -> None:
        """`opened`: the prompt ends inside the thinking span. Set what `_answer` needs before calling this."""
        self._reader = Reader()
        self._sink = sink
        self._steps = self._answer(opened)

    def _answer(self, opened: bool) -> Steps[None]:
        """Read one answer, to its end."""
        raise NotImplementedError

    def push(self, text: str) -> list[Part]:
        self._reader.feed(text)
        next(self._steps, None)
        return self._sink.take()

    def finish(self) -> list[Part]:
        self._reader.end()
        next(self._steps, None)
        self._sink.finish()
        return self._sink.take()
