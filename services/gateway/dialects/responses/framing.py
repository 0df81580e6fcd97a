"""An answer in the Responses dialect: typed events in order, or the object that the last of them carries. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.gateway.dialects.openai_frames import traces
from services.gateway.dialects.responses.output import OutputItems
from services.gateway.dialects.responses.request import ResponsesRequest
from services.gateway.dialects.responses.tools import Toolbox, official_choice
from services.gateway.dialects.text_logprobs import TextLogprobs
from services.gateway.errors import ApiError
from services.gateway.formats.parts import Part, Thought
from services.gateway.generation.choice import CANCELLED, CommittedToken, Delta, Event, Finished
from services.gateway.http.dialect import Identity


class Answered:
    """An answer as it grows: its items, and the response object around them."""

    def __init__(self, request: ResponsesRequest, box: Toolbox, identity: Identity) -> None:
        self._request = request
        self._box = box
        self._identity = identity
        self._prepared = prepared = identity.prepared
        self._finished: Finished | None = None
        self._pieces: list[CommittedToken] = []  # only where the request asks for them
        self._logprobs = TextLogprobs(prepared.reading.parser(), prepared.lexicon) if request.logprobs else None
        self._items = OutputItems(identity.id, box.origins, sealed=request.sealed, logprobs=self._logprobs)

    @property
    def id(self) -> str:
        return f"resp_{self._identity.id}"

    def take(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The dialect's events for these."""
        told: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, Delta):
                self._note(event)
                told += self._items.push(filter(self._shows, event.parts))
            else:
                self._finished = event
                if self._logprobs is not None:
                    self._logprobs.finish()
                told += self._items.finish(cut=self._cut)
        return told

    def _shows(self, part: Part) -> bool:
        return self._request.shows_reasoning or not isinstance(part, Thought)

    def _note(self, delta: Delta) -> None:
        if self._request.return_token_ids or self._request.speculative_trace:
            self._pieces += delta.pieces
        if self._logprobs is not None:
            for piece in delta.pieces:
                self._logprobs.push(piece)
            self._logprobs.flush(delta.tail)

    @property
    def _cut(self) -> bool:
        return self._finished is not None and self._finished.reason == "length"

    @property
    def background(self) -> bool:
        return self._request.background

    def queued(self) -> dict[str, Any]:
        """The response before a verifier works on it."""
        return self._object("queued")

    def begun(self) -> dict[str, Any]:
        """The response before its first token."""
        return self._object("in_progress")

    def done(self) -> dict[str, Any]:
        """The response at its end: completed, or incomplete because it reached its limit."""
        assert self._finished is not None
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if self._cut else {}
        status = "incomplete" if self._cut else "completed"
        return {
            **self._object(status),
            **details,
            "output": self._items.items(),
            "usage": self._usage(self._finished),
            "seed": self._prepared.seed,
            "speculative": self._finished.statistics.report(),
            **traces(self._request, self._pieces),
        }

    def failed(self, error: ApiError) -> dict[str, Any]:
        """The response with the output up to its failure or cancellation."""
        if error.code == CANCELLED:
            return {**self._object("cancelled"), "output": self._items.items()}
        return failure(self._object("failed"), error.message, self._items.items())

    def _usage(self, finished: Finished) -> dict[str, object]:
        prompt = self._prepared.prompt_tokens
        return {
            "input_tokens": prompt,
            # Keeping a prefix costs the client nothing, so no tokens count as written.
            "input_tokens_details": {"cached_tokens": min(prompt, finished.cached), "cache_write_tokens": 0},
            "output_tokens": finished.tokens,
            "output_tokens_details": {"reasoning_tokens": finished.reasoning},
            "total_tokens": prompt + finished.tokens,
        }

    def _object(self, status: str) -> dict[str, Any]:
        request, model = self._request, self._prepared.model
        text: dict[str, Any] = {"format": {"type": "text"}}
        if request.text.format.type != "text":
            text = {"format": request.text.format.model_dump(by_alias=True, exclude_none=True)}
        if request.text.format.type == "json_object":
            text = {"format": {"type": "json_object"}}
        if request.text.verbosity is not None:
            text["verbosity"] = request.text.verbosity
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._identity.created,
            "status": status,
            "background": request.background,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.limit(),
            "metadata": request.metadata,
            "model": model.name,
            "output": [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": request.thought().effort, "summary": request.reasoning.summary},
            "store": request.store,
            "system_fingerprint": model.system_fingerprint,
            "temperature": request.temperature,
            "text": text,
            "tool_choice": official_choice(request.tool_choice),
            "tools": self._box.echo,
            "top_logprobs": request.top_logprobs,
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
        }


class ResponsesFraming:
    """A stream: created, in progress, the items' events, and completed, incomplete or failed. There is no end mark.

    A background response is queued until its first token, and its frames have ids from which a client can continue.
    """

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._queued = answered.background
        self._sequence = 0

    def begin(self) -> list[bytes]:
        if self._queued:
            response = self._answered.queued()
            return [self._lifecycle("created", response), self._lifecycle("queued", response)]
        response = self._answered.begun()
        return [self._lifecycle("created", response), self._lifecycle("in_progress", response)]

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        begun = []
        if events and self._queued:
            self._queued = False
            begun = [self._lifecycle("in_progress", self._answered.begun())]
        return [*begun, *(self._frame(event) for event in self._answered.take(events))]

    def end(self) -> list[bytes]:
        response = self._answered.done()
        return [self._lifecycle(response["status"], response)]

    def fail(self, error: ApiError) -> list[bytes]:
        return [self._lifecycle("failed", self._answered.failed(error))]

    def ping(self) -> bytes:
        # An event and not a comment: Codex's idle timer does not see comments.
        return self._lifecycle("in_progress", self._answered.begun())

    def _lifecycle(self, name: str, response: dict[str, Any]) -> bytes:
        return self._frame({"type": f"response.{name}", "response": response})

    def _frame(self, event: dict[str, Any]) -> bytes:
        self._sequence += 1
        return numbered(event, self._sequence - 1, resumable=self._answered.background)


def numbered(event: Mapping[str, Any], number: int, *, resumable: bool) -> bytes:
    """The frame of an event. The frames of a stream that can be resumed have the event's number as id."""
    data = {"type": event["type"], "sequence_number": number, **event}
    place = b"id: %d\n" % number if resumable else b""
    return place + b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(data))


def told(frame: bytes) -> dict[str, Any]:
    """The event of a frame that `numbered` made."""
    event: dict[str, Any] = msgspec.json.decode(frame.partition(b"\ndata: ")[2])
    return event


def failure(response: Mapping[str, Any], message: str, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The response after an error, with its output so far."""
    # Typed clients accept only OpenAI's codes; of these only this one means a failure of the server.
    return {**response, "status": "failed", "error": {"code": "server_error", "message": message}, "output": output}


class ResponsesCollector:
    """A whole answer: the object that a stream ends with."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered

    def take(self, events: Sequence[Event]) -> None:
        self._answered.take(events)

    def body(self) -> dict[str, object]:
        return self._answered.done()
