"""A chat's messages as clients send them, and as templates want them: text, and calls whose arguments are JSON text."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from services.gateway.dialects.content_parts import as_arguments, as_text
from services.gateway.dialects.tool_calls import bare, for_template, input_arguments

# What a content part is called and where its text is; also parts that clients carry over from the Responses API.
_TEXTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_ONLY: Final = "only 'text': this server reads no images, audio or files"


class CalledFunction(BaseModel):
    """The function that was called and its arguments, which stay as they are even if they are not JSON."""

    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(as_arguments)] = "{}"


class ChatToolCall(BaseModel):
    """A call that the assistant made, of a function or a custom tool."""

    id: str | None = None
    function: CalledFunction

    @model_validator(mode="before")
    @classmethod
    def _as_function(cls, value: Any) -> Any:
        custom = value.get("custom") if isinstance(value, dict) else None
        if not isinstance(custom, dict) or not isinstance(custom.get("input"), str):
            return value
        return {**value, "function": {**custom, "arguments": input_arguments(custom["input"])}}

    def variables(self) -> dict[str, object]:
        """As a template sees it."""
        return for_template(self.id or "", self.function.name, self.function.arguments)


class ChatMessage(BaseModel):
    """One message of a conversation; content is text by the time it is here."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, BeforeValidator(lambda value: as_text(value, _TEXTS, _ONLY))] = ""
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: CalledFunction | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    prefix: bool | None = None  # the answer continues this message, as in Mistral's and DeepSeek's APIs

    def variables(self) -> dict[str, object]:
        """The message as a template sees it: the content, and those other fields that the client sent.

        The old `function` role becomes `tool`, and an old `function_call` becomes a tool call.
        """
        message: dict[str, object] = {"role": self.role, "content": self.content or self.refusal or ""}
        calls = [call.variables() for call in self.tool_calls or ()]
        if self.function_call is not None:
            calls.append(ChatToolCall(id=_legacy_id(self.function_call.name), function=self.function_call).variables())
        call_id = bare(self.tool_call_id) if self.tool_call_id is not None else None
        if self.role == "function":
            message["role"], call_id = "tool", _legacy_id(self.name or "")
        thought = self.reasoning_content if self.reasoning_content is not None else self.reasoning
        rest = {"name": self.name, "tool_calls": calls or None, "tool_call_id": call_id, "reasoning_content": thought}
        return message | {name: value for name, value in rest.items() if value is not None}


def continued(messages: Sequence[ChatMessage], wanted: bool) -> bool:
    """Whether the answer continues the last message. Raises `ValueError` with the reason if it cannot."""
    last = messages[-1]
    if not (wanted or last.prefix):
        return False
    if last.role != "assistant":
        raise ValueError("only an assistant's message can be continued, and the last message is not one")
    if last.tool_calls or last.function_call:
        raise ValueError("a message with tool calls cannot be continued")
    return True


def _legacy_id(name: str) -> str:
    return f"function-{name}"
