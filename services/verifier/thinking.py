"""A bound on an answer's thinking: counts the tokens of thinking spans and says when to close one. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared.wire.messages import ThinkingLimit


class _State(NamedTuple):
    began: int | None  # offset of the open span's first token; None: no span is open
    spent: int = 0  # tokens of earlier spans
    closed: int = 0  # tokens of `close` that were pushed so far; 0: `close` has not begun


class ThinkingBudget:
    """Follows an answer token by token. The budget covers all its spans together.

    The state depends on the tokens alone, so drafts and takeovers change nothing.
    """

    def __init__(self, thinking: ThinkingLimit) -> None:
        self._thinking = thinking
        self._tokens: list[int] = []
        self._states = [_State(0 if thinking.opened else None)]

    def due(self, admits: Callable[[Sequence[int]], bool]) -> tuple[int, ...]:
        """The rest of `close`, if it must come now; empty: the model continues by itself.

        `close` begins only if `admits` allows all of it, and is then written to its end.
        """
        state, close = self._states[-1], self._thinking.close
        if state.closed:
            return close[state.closed :]
        if state.began is None or state.spent + self._inside(state.began) < self._thinking.budget:
            return ()
        return close if admits(close) else ()

    def push(self, token: int, forced: bool) -> None:
        """Step over the answer's next token; `forced`: it was due."""
        self._tokens.append(token)
        self._states.append(self._after(self._states[-1], forced))

    def pop(self, count: int) -> None:
        """Take back the last `count` tokens."""
        del self._tokens[len(self._tokens) - count :]
        del self._states[len(self._states) - count :]

    def _after(self, state: _State, forced: bool) -> _State:
        thinking, offset = self._thinking, len(self._tokens)
        if forced:
            closed = state.closed + 1
            return state._replace(closed=closed) if closed < len(thinking.close) else self._outside(state, closed)
        if state.began is None:
            return state._replace(began=offset) if self._ends_with(thinking.start) else state
        if offset - state.began >= len(thinking.end) and self._ends_with(thinking.end):
            return self._outside(state, len(thinking.end))
        return state

    def _outside(self, state: _State, mark: int) -> _State:
        """The state after a span that ended with a mark of `mark` tokens, which do not count."""
        assert state.began is not None, "only an open span ends"
        return _State(None, state.spent + len(self._tokens) - mark - state.began)

    def _inside(self, began: int) -> int:
        """Tokens of the open span, without those that may be the beginning of its end mark."""
        end, size = self._thinking.end, len(self._tokens) - began
        for length in range(min(size, len(end) - 1), 0, -1):
            if self._ends_with(end[:length]):
                return size - length
        return size

    def _ends_with(self, mark: tuple[int, ...]) -> bool:
        return bool(mark) and tuple(self._tokens[-len(mark) :]) == mark
