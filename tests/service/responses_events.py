"""Reads a Responses stream as strictly as the official types have it."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def events(transcript: str) -> list[dict[str, Any]]:
    """The events of a stream: each with an `event:` line that says its type, numbered from 0, and official."""
    found = []
    for number, frame in enumerate(transcript.removesuffix("\n\n").split("\n\n")):
        name, data = frame.split("\n")
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
