"""An answer in the Responses dialect: typed events in order, or the object that the last of them carries. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.gateway.dialects.responses.output import OutputItems, Told
from services.gateway.dialects.responses.request import ResponsesRequest
from services.gateway.dialects.responses.tools import Toolbox, official_choice
from services.gateway.dialects.tokens import TextLogprobs, traces
from services.gateway.errors import ApiError
from services.gateway.formats.parts import Part, Thought
from services.gateway.generation.choice import CANCELLED, CommittedToken, Delta, Event
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity


class ResponsesAnswer:
    """A stream: created, in progress, the items' events, and completed, incomplete or failed. There is no end mark.

    A background response is queued until its first token, and its frames have ids from which a client can continue.
    """

    def __init__(self, request: ResponsesRequest, box: Toolbox, identity: Identity, usage: UsageTally) -> None:
        self._request = request
        self._box = box
        self._identity = identity
        self._prepared = prepared = identity.prepared
        self._usage = usage
        self._queued = request.background
        self._number = 0  # of the next frame
        self._cut = False  # the answer reached its limit
        self._pieces: list[CommittedToken] = []  # only where the request asks for them
        self._logprobs = TextLogprobs(prepared.reading.parser(), prepared.lexicon) if request.logprobs else None
        self._items = OutputItems(identity.id, box.origins, sealed=request.sealed, logprobs=self._logprobs)

    def begin(self) -> list[Told]:
        second = "queued" if self._queued else "in_progress"
        response = self._object(second)
        return [_lifecycle("created", response), _lifecycle(second, response)]

    def take(self, event: Event) -> list[Told]:
        begun = [self._progress()] if self._queued else []
        self._queued = False
        if isinstance(event, Delta):
            self._note(event)
            return [*begun, *self._items.push(filter(self._shows, event.parts))]
        self._cut = event.reason == "length"
        if self._logprobs is not None:
            self._logprobs.finish()
        return [*begun, *self._items.finish(cut=self._cut)]

    def end(self) -> list[Told]:
        response = self.done()
        return [_lifecycle(response["status"], response)]

    def frame(self, told: Told) -> bytes:
        self._number += 1
        return numbered(told, self._number - 1, resumable=self._request.background)

    def fail(self, error: ApiError) -> bytes:
        return self.frame(_lifecycle("failed", self._failed(error)))

    def ping(self) -> bytes:
        # An event and not a comment: Codex's idle timer does not see comments.
        return self.frame(self._progress())

    def whole(self, told: Sequence[Told]) -> dict[str, object]:
        """The object that the stream ends with."""
        response: dict[str, object] = told[-1]["response"]
        return response

    def _shows(self, part: Part) -> bool:
        return self._request.shows_reasoning or not isinstance(part, Thought)

    def _note(self, delta: Delta) -> None:
        if self._request.return_token_ids or self._request.speculative_trace:
            self._pieces += delta.pieces
        if self._logprobs is not None:
            for piece in delta.pieces:
                self._logprobs.push(piece)
            self._logprobs.flush(delta.tail)

    def _progress(self) -> Told:
        return _lifecycle("in_progress", self._object("in_progress"))

    def done(self) -> dict[str, Any]:
        """The response at its end: completed, or incomplete because it reached its limit."""
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if self._cut else {}
        status = "incomplete" if self._cut else "completed"
        return {
            **self._object(status),
            **details,
            "output": self._items.items(),
            "usage": self._counts(),
            "seed": self._prepared.seed,
            "speculative": self._usage.statistics.report(),
            **traces(self._request, self._pieces),
        }

    def _failed(self, error: ApiError) -> dict[str, Any]:
        """The response with the output up to its failure or cancellation."""
        if error.code == CANCELLED:
            return {**self._object("cancelled"), "output": self._items.items()}
        return failure(self._object("failed"), error.message, self._items.items())

    def _counts(self) -> dict[str, object]:
        usage = self._usage
        return {
            "input_tokens": usage.prompt,
            # Keeping a prefix costs the client nothing, so no tokens count as written.
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.tokens,
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
            "id": f"resp_{self._identity.id}",
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


def _lifecycle(name: str, response: dict[str, Any]) -> Told:
    return {"type": f"response.{name}", "response": response}


def numbered(event: Mapping[str, Any], number: int, *, resumable: bool) -> bytes:
    """The frame of an event. The frames of a stream that can be resumed have the event's number as id."""
    data = {"type": event["type"], "sequence_number": number, **event}
    place = b"id: %d\n" % number if resumable else b""
    return place + b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(data))


def unframed(frame: bytes) -> dict[str, Any]:
    """The event of a frame that `numbered` made."""
    event: dict[str, Any] = msgspec.json.decode(frame.partition(b"\ndata: ")[2])
    return event


def failure(response: Mapping[str, Any], message: str, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The response after an error, with its output so far."""
    # Typed clients accept only OpenAI's codes; of these only this one means a failure of the server.
    return {**response, "status": "failed", "error": {"code": "server_error", "message": message}, "output": output}
