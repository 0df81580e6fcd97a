"""A chat request as clients send it, checked.

A field that would change the answer but is not built is refused by name, never dropped silently.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from services.gateway.bodies import checked, parse_object
from services.gateway.errors import invalid
from services.gateway.fields import GenerationFields
from services.gateway.requests import Conversation, GenerationRequest
from services.gateway.unbuilt import refuse_unbuilt


class Message(BaseModel):
    """One message of a conversation; content is text by the time it is here."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str = ""
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        if value is None:
            return ""
        return "\n".join(map(_part_text, value)) if isinstance(value, list) else value

    def variables(self) -> dict[str, object]:
        """The message as a template sees it: content, and of the rest only what the client sent."""
        return self.model_dump(exclude_none=True)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise PydanticCustomError("part", "a content part must be an object with 'type' and 'text'")
    if part.get("type") != "text":
        kind = str(part.get("type"))[:64]
        raise PydanticCustomError(
            "part", "content parts of type '{kind}' are not supported, only 'text'", {"kind": kind}
        )
    if not isinstance(part.get("text"), str):
        raise PydanticCustomError("part", "a content part of type 'text' must have a string 'text'")
    return str(part["text"])


class StreamOptions(BaseModel):
    """How a stream is framed."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatRequest(GenerationFields):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    n: int = Field(1, ge=1, le=8)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)

    def generation(self) -> GenerationRequest:
        """The request in no dialect, its seed decided."""
        messages = tuple(message.variables() for message in self.messages)
        return GenerationRequest(
            model=self.model,
            prompts=(Conversation(messages=messages, template_variables=self.chat_template_kwargs),),
            sampling=self.sampling(),
            choices=self.n,
            max_tokens=self.limit(),
            stops=self.stop,
            top_logprobs=self.top_logprobs if self.logprobs else -1,
            speculation=self.speculation(),
            cache_prompt=self.cache_prompt,
        )


def parse_chat(data: bytes) -> ChatRequest:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unbuilt(payload)
    chat = checked(ChatRequest, payload)
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    return chat
