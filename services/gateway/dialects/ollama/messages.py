"""The messages and tools of Ollama's chat requests, checked and turned into OpenAI's shape."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from services.gateway.dialects.tool_calls import bare, for_template
from services.gateway.requests.schemas import SchemaObject
from services.gateway.requests.types import Tool

_NO_IMAGES = "images are not supported: this gateway takes text only"


class OllamaFunctionCall(BaseModel):
    """A function that was called."""

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _object(cls, value: object) -> object:
        if not isinstance(value, str):
            return {} if value is None else value
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise PydanticCustomError("arguments", "must be an object or the JSON text of one") from None


class OllamaToolCall(BaseModel):
    """A call that an earlier answer made."""

    id: str | None = None
    function: OllamaFunctionCall


class OllamaMessage(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = ""
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    @field_validator("images")
    @classmethod
    def _none(cls, value: list[Any] | None) -> None:
        if value:
            raise PydanticCustomError("images", _NO_IMAGES)

    def openai(self, ids: Sequence[str]) -> dict[str, object]:
        """The message in OpenAI's shape; `ids` are its calls'."""
        message: dict[str, object] = {"role": self.role, "content": self.content}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.tool_calls:
            message["tool_calls"] = [
                for_template(id, call.function.name, json.dumps(call.function.arguments, ensure_ascii=False))
                for id, call in zip(ids, self.tool_calls, strict=True)
            ]
        if self.tool_name:
            message["name"] = self.tool_name
        return message


class OllamaFunction(BaseModel):
    """What a tool is called and takes."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: SchemaObject | None = None


class OllamaTool(BaseModel):
    """A tool that may be called."""

    type: Literal["function"] = "function"
    function: OllamaFunction

    def tool(self) -> Tool:
        function = self.function
        return Tool(name=function.name, description=function.description or "", parameters=function.parameters or {})


def linked(messages: Sequence[OllamaMessage]) -> tuple[dict[str, object], ...]:
    """The messages in OpenAI's shape, every result with the id of its call.

    Ollama's clients mostly send no ids. A result then belongs to the first open call of its name, else to the first
    open call.
    """
    turns: list[dict[str, object]] = []
    waiting: list[tuple[str, str]] = []  # name and id of the calls that have no result yet
    for position, message in enumerate(messages):
        calls = message.tool_calls or ()
        ids = [bare(call.id or f"{position}-{index}") for index, call in enumerate(calls)]
        waiting += zip((call.function.name for call in calls), ids, strict=True)
        turn = message.openai(ids)
        if message.role == "tool":
            turn["tool_call_id"] = _answered(message, waiting)
        turns.append(turn)
    return tuple(turns)


def _answered(result: OllamaMessage, waiting: list[tuple[str, str]]) -> str:
    """The id of the call whose result this is; removes the call from those that wait."""
    given = bare(result.tool_call_id or "")
    order = sorted(waiting, key=lambda call: (call[1] != given, call[0] != result.tool_name))
    if given and (not order or order[0][1] != given):
        return given
    if not order:
        return ""
    waiting.remove(order[0])
    return order[0][1]
