"""Token ids to text that may be shown: the text does not depend on how tokens were split into commits.

Two stages, bytes to characters and characters to shown text. Pure; no I/O, no clock.
"""

import codecs
from collections.abc import Callable, Sequence


class Detokenizer:
    """UTF-8 from token pieces. The output joined equals the pieces joined and decoded with U+FFFD for invalid bytes."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that this token completes; an incomplete sequence is held back."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """What is left of an incomplete sequence, as U+FFFD."""
        return self._decoder.decode(b"", final=True)


class _Pattern:
    """Knuth-Morris-Pratt: how much of one stop string the text so far ends with, in constant time per character."""

    __slots__ = ("_fallback", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._fallback = [0] * (len(text) + 1)
        length = 0
        for index in range(1, len(text)):
            while length and text[index] != text[length]:
                length = self._fallback[length]
            length += text[index] == text[length]
            self._fallback[index + 1] = length

    def advance(self, character: str) -> bool:
        """Take one character; True if the stop string is now complete."""
        while self.matched and self.text[self.matched] != character:
            self.matched = self._fallback[self.matched]
        self.matched += self.text[self.matched] == character
        return self.matched == len(self.text)


class StopMatcher:
    """Text up to the first stop string: the one that completes first, the longest of those that complete together.

    It never outputs a character of the matching stop string, so it holds back what may be the start of one.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` must not be empty strings."""
        self._patterns = [_Pattern(stop) for stop in stops]
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is now certain not to be part of a stop string; empty once one has matched."""
        if self.matched is not None:
            return ""
        if not self._patterns:
            return text
        self._held += text
        start = len(self._held) - len(text)
        for index, character in enumerate(text, start + 1):
            complete = [pattern.text for pattern in self._patterns if pattern.advance(character)]
            if complete:
                self.matched = max(complete, key=len)
                return self._take(index - len(self.matched))
        return self._take(len(self._held) - max(pattern.matched for pattern in self._patterns))

    def flush(self) -> str:
        """The text that was held back, once nothing follows; empty once a stop string has matched."""
        return "" if self.matched is not None else self._take(len(self._held))

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken


class TextStream:
    """One answer's text. Push its tokens one by one until `stopped`, then call `finish` once."""

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(piece)
        self._matcher = StopMatcher(stops)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer, or None."""
        return self._matcher.matched

    def push(self, token: int) -> str:
        """The text that may be shown now that this token is known."""
        return self._matcher.push(self._detokenizer.push(token))

    def finish(self) -> str:
        """The rest of the text, now that no token follows."""
        return self._matcher.push(self._detokenizer.flush()) + self._matcher.flush()
