"""Finds the tokens of a message's text; the answer's other tokens are thinking, calls and their marks. Pure.

A parser of its own reads the tokens one by one, so that the result does not depend on how commits were cut.
"""

from collections import defaultdict
from typing import Any

from services.gateway.dialects.chat.parts import logprobs
from services.gateway.formats.parts import Part, PartParser, Text
from services.gateway.generation.choice import CommittedToken
from services.gateway.models.served_model import Lexicon


class TextLogprobs:
    """Log-probabilities by message: the first text of an answer is message 0, text after other parts begins another.

    A token without text of its own (half a character, the end of the answer) counts with the text around it.
    """

    def __init__(self, parser: PartParser, lexicon: Lexicon) -> None:
        self._parser = parser
        self._lexicon = lexicon
        self._message = -1
        self._open = False  # whether text goes on
        self._waiting: list[CommittedToken] = []
        self._ready: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)

    def push(self, piece: CommittedToken) -> None:
        """Take the next token."""
        self._waiting.append(piece)
        self.flush(piece.text)

    def flush(self, text: str) -> None:
        """Add text that belongs to earlier tokens."""
        for part in self._parser.push(text):
            self._sort(part)

    def finish(self) -> None:
        """No token follows."""
        for part in self._parser.finish():
            self._sort(part)
        if self._open:
            self._give(self._waiting)

    def take(self, message: int) -> list[dict[str, Any]]:
        """The entries of this message's tokens that became certain since the last call."""
        return self._ready.pop(message, [])

    def _sort(self, part: Part) -> None:
        if not isinstance(part, Text):
            self._open = False
            self._waiting = self._waiting[-1:]  # one token may end a mark and begin a text
            return
        if not self._open:
            self._open = True
            self._message += 1
            self._waiting = self._last(len(part.text.encode()))
        self._give(self._waiting)
        self._waiting = []

    def _last(self, size: int) -> list[CommittedToken]:
        """The fewest of the waiting tokens, counted from the last, that hold so many bytes; those before are marks."""
        count = held = 0
        while held < size and count < len(self._waiting):
            count += 1
            held += len(self._lexicon.piece(self._waiting[-count].token))
        return self._waiting[len(self._waiting) - count :]

    def _give(self, pieces: list[CommittedToken]) -> None:
        self._ready[self._message] += logprobs(pieces, self._lexicon)["content"]
