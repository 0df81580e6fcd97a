"""Reads a Responses stream as strictly as the official types have it."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def events(transcript: str, after: int | None = None) -> list[dict[str, Any]]:
    """The events of a stream: each with an `event:` line that says its type, numbered, and official.

    Those of a stream in the background have ids, the numbers, and go on behind `after`; others begin with 0.
    """
    found = []
    frames = [frame for frame in transcript.split("\n\n") if frame and not frame.startswith(": ")]
    for number, frame in enumerate(frames, 0 if after is None else after + 1):
        *places, name, data = frame.split("\n")
        assert places == ([] if after is None else [f"id: {number}"])
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        assert _EVENT.validate_python(event).type == event["type"]
        found.append(event)
    return found


def kinds(found: list[dict[str, Any]]) -> list[str]:
    """Their types, with runs of one type as one."""
    types = [event["type"].removeprefix("response.") for event in found]
    return [kind for index, kind in enumerate(types) if index == 0 or types[index - 1] != kind]


def official(response: dict[str, Any]) -> Response:
    """The object as the official type, which must take it."""
    return Response.model_validate(response)
