"""An answer as Ollama gives it: objects with a piece each, and a last one with counts and durations in nanoseconds.

Each tool call is sent whole, as soon as it is complete; one that was cut off is never sent.
"""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from services.gateway.dialects.joining import joined
from services.gateway.dialects.ollama.request import ChatBody, GenerateBody
from services.gateway.dialects.tokens import entries
from services.gateway.dialects.tool_calls import OPENAI
from services.gateway.errors import ApiError
from services.gateway.formats.parts import CallEnd, Part, Text, Thought
from services.gateway.generation.choice import Event, Finished
from services.gateway.generation.tool_calls import Calls
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity

# What one object of a stream says: `text`, `thinking`, `calls`, `logprobs`, and the last object `counts`.
OllamaContent = dict[str, Any]
Shape = Callable[[OllamaContent], dict[str, Any]]


def as_message(said: OllamaContent) -> dict[str, Any]:
    """Chat's form."""
    names = {"thinking": "thinking", "calls": "tool_calls"}
    more = {name: said[own] for own, name in names.items() if said.get(own)}
    return {"message": {"role": "assistant", "content": said.get("text", ""), **more}}


def as_response(said: OllamaContent) -> dict[str, Any]:
    """Generate's form."""
    return {"response": said.get("text", ""), **({"thinking": said["thinking"]} if said.get("thinking") else {})}


def head(model: str) -> dict[str, Any]:
    """What every object begins with."""
    return {"model": model, "created_at": timestamp(datetime.now(UTC))}


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class OllamaAnswer:
    """A stream of lines."""

    def __init__(
        self, shape: Shape, body: ChatBody | GenerateBody, identity: Identity, usage: UsageTally, began_s: float
    ) -> None:
        """`began_s`: when the request came, by `time.monotonic`."""
        self._shape = shape
        self._prepared = identity.prepared
        self._usage = usage
        self._began_s = began_s
        self._logprobs = body.logprobs
        self._calls = Calls()
        self._reason = ""

    def begin(self) -> list[OllamaContent]:
        return []

    def take(self, event: Event) -> list[OllamaContent]:
        if isinstance(event, Finished):
            self._reason = event.reason
            return []
        said = [content for part in event.parts for content in self._say(part)]
        if self._logprobs and event.pieces:
            # A commit's log-probabilities come with its first object.
            said = said or [{}]
            said[0]["logprobs"] = entries(event.pieces, self._prepared.lexicon, ("token", "logprob", "bytes"))
        return said

    def _say(self, part: Part) -> list[OllamaContent]:
        self._calls.take(part)
        match part:
            case Text(text):
                return [{"text": text}]
            case Thought(text):
                return [{"thinking": text}]
            case CallEnd(index):
                call = self._calls.calls[index]
                function = {"index": index, "name": call.name, "arguments": json.loads(call.arguments or "{}")}
                return [{"calls": [{"id": OPENAI + call.id, "function": function}]}]
        return []

    def end(self) -> list[OllamaContent]:
        counts: dict[str, object] = {
            "done_reason": "length" if self._reason == "length" else "stop",
            "total_duration": _nanoseconds(time.monotonic() - self._began_s),
            "load_duration": 0,
            "prompt_eval_count": self._usage.prompt,
            "prompt_eval_duration": _nanoseconds(self._usage.prompt_s),
            "eval_count": self._usage.tokens,
            "eval_duration": _nanoseconds(self._usage.predicted_s),
            "seed": self._prepared.seed,
            "speculative": self._usage.statistics.report(),
        }
        return [{"counts": counts}]

    def frame(self, told: OllamaContent) -> bytes:
        return _line(self._object(told))

    def fail(self, error: ApiError) -> bytes:
        return _line({"error": error.message})

    def ping(self) -> bytes:
        """An empty object, because lines of JSON have no comments."""
        return self.frame({})

    def whole(self, told: Sequence[OllamaContent]) -> dict[str, object]:
        """One object with the content of all."""
        return self._object(joined(told))

    def _object(self, said: OllamaContent) -> dict[str, Any]:
        counts = said.get("counts", {})
        chosen = {"logprobs": said["logprobs"]} if "logprobs" in said else {}
        done = bool(counts)
        return {**head(self._prepared.model.name), **self._shape(said), **chosen, "done": done, **counts}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _line(value: object) -> bytes:
    # Not msgspec: a call's arguments may hold integers beyond 64 bits.
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
