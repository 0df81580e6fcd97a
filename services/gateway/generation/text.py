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


class _Patterns:
    """Aho and Corasick's automaton: which stop string the text so far ends with.

    A character takes constant time, however many stop strings there are.

    A state stands for a beginning of a stop string, the longest with which the text ends; state 0 for none.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._complete: list[str | None] = [None]  # the longest stop string with which the state's text ends
        for text in texts:
            self._add(text)
        self._fallback = [0] * len(self._next)  # the state of the longest shorter ending of the state's text
        for state in sorted(range(len(self._next)), key=self._depth.__getitem__):
            for character, longer in self._next[state].items():
                fallback = self.step(self._fallback[state], character) if state else 0
                self._fallback[longer] = fallback
                self._complete[longer] = self._complete[longer] or self._complete[fallback]

    def _add(self, text: str) -> None:
        state = 0
        for character in text:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._complete.append(None)
            state = self._next[state][character]
        self._complete[state] = text

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def complete(self, state: int) -> str | None:
        """The longest stop string that ends here."""
        return self._complete[state]

    def depth(self, state: int) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        return self._depth[state]


class StopMatcher:
    """Text up to the first stop string: the one that completes first, the longest of those that complete together.

    It never outputs a character of the matching stop string, so it holds back what may be the start of one.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` must not be empty strings."""
        self._patterns = _Patterns(stops) if stops else None
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is now certain not to be part of a stop string; empty once one has matched."""
        if self.matched is not None:
            return ""
        if self._patterns is None:
            return text
        self._held += text
        start = len(self._held) - len(text)
        for index, character in enumerate(text, start + 1):
            self._state = self._patterns.step(self._state, character)
            self.matched = self._patterns.complete(self._state)
            if self.matched is not None:
                return self._take(index - len(self.matched))
        return self._take(len(self._held) - self._patterns.depth(self._state))

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
