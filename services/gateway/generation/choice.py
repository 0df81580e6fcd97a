"""From commits to events: what each commit of a choice adds to its text and parts, and how the choice ends. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from services.gateway.errors import SERVER, ApiError
from services.gateway.formats.parts import Part, Thought, merged
from services.gateway.generation.draft_statistics import DraftStatistics
from services.gateway.generation.preparation import Reading
from services.gateway.generation.text import TextStream
from services.gateway.generation.tool_calls import Calls
from services.gateway.storage.kept_turns import KeptTurn
from shared.wire.messages import Chunk, Finish, TokenLogprob

CANCELLED: Final = "request_cancelled"


class CommittedToken(Struct, frozen=True):
    """A committed token with the text that it made certain, its drafter ("" if none) and its log-probability."""

    token: int
    text: str
    source: str
    logprob: TokenLogprob | None
    refused: bool = False  # the target drew it where a draft guessed another token

    @property
    def trace(self) -> dict[str, object]:
        """Its entry in `speculative_trace`."""
        return {"token": self.token, "text": self.text, "source": self.source, "refused": self.refused}


class Delta(Struct, frozen=True):
    """What one commit added to a choice: tokens with their text, and the parts that became certain.

    `tail` is text of earlier tokens that was held back.
    """

    choice: int
    pieces: tuple[CommittedToken, ...]
    parts: tuple[Part, ...]
    tail: str = ""

    @property
    def text(self) -> str:
        """The raw text, marks of thinking and calls included."""
        return "".join(piece.text for piece in self.pieces) + self.tail


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice ended: "stop", "length" or "tool_calls" (calls that are all complete), the stop string if one matched,
    and its counts.

    `call` is the id of its first tool call and `turn` what to keep of it, if it made calls and all are complete.
    `reasoning` counts the tokens of thinking, with the marks before it.
    """

    choice: int
    reason: str
    stop: str | None
    tokens: int
    cached: int
    statistics: DraftStatistics
    call: str = ""
    turn: KeptTurn | None = None
    reasoning: int = 0


Event = Delta | Finished


def _failure(chunk: Chunk) -> ApiError:
    if chunk.finish is Finish.DEADLINE:
        return deadline_passed()
    if chunk.finish is Finish.CANCELLED:
        return ApiError(499, "The request was cancelled.", kind=SERVER, code=CANCELLED)
    return ApiError(500, chunk.detail or "The verifier failed on this request.", kind=SERVER, code="generation_failed")


def deadline_passed() -> ApiError:
    """The request took longer than it may."""
    return ApiError(504, "The request's deadline passed.", kind=SERVER, code="deadline_exceeded")


class Choice:
    """One choice's way from commits to events. Pure; its text does not depend on how tokens were split into commits.

    Tokens count up to and including the one that completes a stop string. The token that ends an answer by itself is
    never committed, so it does not count.
    """

    def __init__(self, index: int, reading: Reading) -> None:
        self._index = index
        self._reading = reading
        self._text = TextStream(reading.piece, reading.stops)
        self._parser = reading.parser()
        self._output: list[int] = []
        self._calls = Calls()
        self._silent = 0  # tokens since the last part
        self._reasoning = 0
        self._statistics = DraftStatistics()
        self._cached: int | None = None
        self.ended = False

    def take(self, chunk: Chunk) -> list[Event | ApiError]:
        """The events of the next commit; after a stop string, a finish or a failure the choice has `ended`."""
        if self._cached is None:
            self._cached = chunk.cached
        self._statistics.add(chunk)
        pieces: list[CommittedToken] = []
        for position, token in enumerate(chunk.tokens):
            text = self._text.push(token)
            source = chunk.sources[position] if position < len(chunk.sources) else ""
            logprob = chunk.logprobs[position] if position < len(chunk.logprobs) else None
            refused = position == chunk.accepted < chunk.tried
            pieces.append(CommittedToken(token, text, source, logprob, refused))
            if self._text.stopped is not None:
                break
        self._output += [piece.token for piece in pieces]
        answered = chunk.finish in (Finish.STOP, Finish.LENGTH)
        tail = self._text.finish() if answered and self._text.stopped is None else ""
        if tail and pieces:
            last = pieces[-1]
            pieces[-1], tail = replace(last, text=last.text + tail), ""
        stop = self._text.stopped
        parts = self._parse(pieces, tail, stop is not None or answered)
        events: list[Event | ApiError] = []
        if pieces or parts or tail:
            events.append(Delta(self._index, tuple(pieces), parts, tail))
        self.ended = stop is not None or chunk.finish is not Finish.NONE
        if stop is not None or answered:
            events.append(self._finish(chunk.finish, stop))
        elif self.ended:
            events.append(_failure(chunk))
        return events

    def _parse(self, pieces: Sequence[CommittedToken], tail: str, last: bool) -> tuple[Part, ...]:
        parts: list[Part] = []
        # Token by token, so that how tokens were split into commits does not change which count as thinking.
        for piece in pieces:
            self._silent += 1
            parts += self._count(self._parser.push(piece.text))
        if tail:
            parts += self._count(self._parser.push(tail))
        if last:
            parts += self._count(self._parser.finish())
        return merged(parts)

    def _count(self, parts: list[Part]) -> list[Part]:
        for part in parts:
            self._calls.take(part)
        if parts:
            self._reasoning += self._silent if isinstance(parts[-1], Thought) else 0
            self._silent = 0
        return parts

    def _finish(self, finish: Finish, stop: str | None) -> Finished:
        reason = "length" if stop is None and finish is Finish.LENGTH else "stop"
        complete = self._calls.complete
        return Finished(
            self._index,
            "tool_calls" if complete and reason == "stop" else reason,
            stop,
            len(self._output),
            self._cached or 0,
            self._statistics,
            self._calls.calls[0].id if complete else "",
            self._calls.turn(self._output, self._reading) if complete else None,
            self._reasoning,
        )
