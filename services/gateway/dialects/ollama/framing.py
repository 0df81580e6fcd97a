"""An answer as Ollama gives it: objects with a piece each, and a last one with counts and durations in nanoseconds.

Each tool call is sent whole, as soon as it is complete; one that was cut off is never sent.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from services.gateway.dialects.tool_call_ids import OPENAI
from services.gateway.errors import ApiError
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought
from services.gateway.generation.choice import CommittedToken, Delta, Event, Finished
from services.gateway.http.dialect import Identity
from services.gateway.models.served_model import Lexicon

_LOWEST_LOGPROB: Final = -9999.0  # JSON has no infinity


@dataclass(slots=True)
class OllamaContent:
    """The content of one object of the stream, or of the whole answer."""

    text: str = ""
    thinking: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


Shape = Callable[[OllamaContent], dict[str, Any]]


def as_message(said: OllamaContent) -> dict[str, Any]:
    """Chat's form."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.thinking:
        message["thinking"] = said.thinking
    if said.calls:
        message["tool_calls"] = said.calls
    return {"message": message}


def as_response(said: OllamaContent) -> dict[str, Any]:
    """Generate's form."""
    return {"response": said.text, **({"thinking": said.thinking} if said.thinking else {})}


def head(model: str) -> dict[str, Any]:
    """What every object begins with."""
    return {"model": model, "created_at": timestamp(datetime.now(UTC))}


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Calls:
    """Puts calls together from their pieces."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[CallStart, list[str]]] = {}

    def take(self, part: CallStart | CallArguments | CallEnd) -> dict[str, Any] | None:
        """The call that this part completes."""
        if isinstance(part, CallStart):
            self._open[part.index] = (part, [])
        elif isinstance(part, CallArguments):
            self._open[part.index][1].append(part.fragment)
        else:
            start, fragments = self._open.pop(part.index)
            arguments = json.loads("".join(fragments) or "{}")
            function = {"index": start.index, "name": start.name, "arguments": arguments}
            return {"id": OPENAI + start.id, "function": function}
        return None


class _Answer:
    """What the two forms share."""

    def __init__(
        self,
        shape: Shape,
        identity: Identity,
        began_ns: int,
        *,
        logprobs: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._shape = shape
        self._prepared = identity.prepared
        self._began = began_ns
        self._first: int | None = None
        self._clock = clock
        self._logprobs = logprobs
        self._calls = _Calls()
        self._finished: Finished | None = None

    def _see(self, events: Sequence[Event]) -> Iterable[Delta]:
        for event in events:
            if isinstance(event, Finished):
                self._finished = event
                continue
            self._first = self._first or self._clock()
            yield event

    def _say(self, parts: Sequence[Part]) -> list[OllamaContent]:
        """An object for each part that has content of its own."""
        said: list[OllamaContent] = []
        for part in parts:
            match part:
                case Text():
                    said.append(OllamaContent(text=part.text))
                case Thought():
                    said.append(OllamaContent(thinking=part.text))
                case _:
                    call = self._calls.take(part)
                    said += [OllamaContent(calls=[call])] if call is not None else []
        return said

    def _object(self, said: OllamaContent, pieces: Sequence[CommittedToken] = ()) -> dict[str, Any]:
        chosen = {"logprobs": logprobs(pieces, self._prepared.lexicon)} if self._logprobs and pieces else {}
        return {**head(self._prepared.model.name), **self._shape(said), **chosen, "done": False}

    def _last(self, said: OllamaContent, pieces: Sequence[CommittedToken] = ()) -> dict[str, Any]:
        assert self._finished is not None
        end = self._clock()
        first = self._first or end
        return {
            **self._object(said, pieces),
            "done": True,
            "done_reason": "length" if self._finished.reason == "length" else "stop",
            "total_duration": end - self._began,
            "load_duration": 0,
            "prompt_eval_count": self._prepared.prompt_tokens,
            "prompt_eval_duration": first - self._began,
            "eval_count": self._finished.tokens,
            "eval_duration": end - first,
            "seed": self._prepared.seed,
            "speculative": self._finished.statistics.report(),
        }


class OllamaFraming(_Answer):
    """A stream of lines."""

    def begin(self) -> list[bytes]:
        return []

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        lines: list[bytes] = []
        for delta in self._see(events):
            said = self._say(delta.parts)
            if not said and self._logprobs and delta.pieces:
                said = [OllamaContent()]
            # A commit's log-probabilities come with its first object.
            lines += [_line(self._object(one, () if index else delta.pieces)) for index, one in enumerate(said)]
        return lines

    def end(self) -> list[bytes]:
        return [_line(self._last(OllamaContent()))]

    def fail(self, error: ApiError) -> list[bytes]:
        return [_line({"error": error.message})]

    def ping(self) -> bytes:
        """An empty object, because lines of JSON have no comments."""
        return _line(self._object(OllamaContent()))


class OllamaCollector(_Answer):
    """A whole answer, with the content that the stream would have had."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._whole = OllamaContent()
        self._pieces: list[CommittedToken] = []

    def take(self, events: Sequence[Event]) -> None:
        for delta in self._see(events):
            self._pieces += delta.pieces
            for one in self._say(delta.parts):
                self._whole.text += one.text
                self._whole.thinking += one.thinking
                self._whole.calls += one.calls

    def body(self) -> dict[str, object]:
        """The object; the answer must have finished."""
        return self._last(self._whole, self._pieces)


def logprobs(pieces: Sequence[CommittedToken], lexicon: Lexicon) -> list[dict[str, Any]]:
    """One entry per token that the verifier gave a log-probability for."""
    return [
        {
            **_entry(piece.token, piece.logprob.logprob, lexicon),
            "top_logprobs": [_entry(token, logprob, lexicon) for token, logprob in piece.logprob.top],
        }
        for piece in pieces
        if piece.logprob is not None
    ]


def _entry(token: int, logprob: float, lexicon: Lexicon) -> dict[str, Any]:
    label = lexicon.label(token)
    return {
        "token": label.decode(errors="replace"),
        "logprob": max(logprob, _LOWEST_LOGPROB),
        "bytes": list(label),
    }


def _line(value: object) -> bytes:
    # Not msgspec: a call's arguments may hold integers beyond 64 bits.
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
