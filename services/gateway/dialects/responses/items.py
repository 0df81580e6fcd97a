"""The items of a Responses conversation, checked, and how they become messages for a chat template. Pure.

Items are finer than messages: several items (thinking, text, calls) may be one turn, which is one message.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Tag

from services.gateway.dialects.content_parts import as_arguments, as_text
from services.gateway.dialects.responses.tools import flat_name
from services.gateway.dialects.tool_calls import bare, for_template, input_arguments

_TEXTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_SEALED: Final = "draftmesh1:"


def seal(thinking: str) -> str:
    """The value of `encrypted_content`, for clients that send back only this. Opaque, not secret."""
    return _SEALED + base64.b64encode(thinking.encode()).decode()


def _unseal(sealed: str) -> str:
    """The thinking in it; "" if another server made it."""
    if not sealed.startswith(_SEALED):
        return ""
    try:
        return base64.b64decode(sealed.removeprefix(_SEALED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


Content = Annotated[
    str,
    BeforeValidator(lambda value: as_text(value, _TEXTS, "only text"), json_schema_input_type=str | list[Any] | None),
]


class MessageItem(BaseModel):
    """A message of the user, the assistant or the system."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class ReasoningItem(BaseModel):
    """The thinking of the assistant."""

    type: Literal["reasoning"] = "reasoning"
    content: Content = ""
    summary: Content = ""
    encrypted_content: str | None = None

    def text(self) -> str:
        """The thinking itself where the client kept it, else its summary."""
        return self.content or _unseal(self.encrypted_content or "") or self.summary


class CallItem(BaseModel):
    """A call that the assistant made; one that is `incomplete` was cut off, so it was never made."""

    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    namespace: str | None = None
    arguments: Annotated[str, BeforeValidator(as_arguments, json_schema_input_type=str | dict[str, Any])] = "{}"
    status: str | None = None

    @property
    def cut(self) -> bool:
        return self.status == "incomplete"

    def openai(self) -> dict[str, object]:
        """As chat templates expect it."""
        return for_template(self.call_id, flat_name(self.namespace, self.name), self.arguments)


class CustomCallItem(BaseModel):
    """A call of a custom tool; one that is `incomplete` was cut off, so it was never made."""

    type: Literal["custom_tool_call"] = "custom_tool_call"
    call_id: str
    name: str
    namespace: str | None = None
    input: str = ""
    status: str | None = None

    @property
    def cut(self) -> bool:
        return self.status == "incomplete"

    def openai(self) -> dict[str, object]:
        """As chat templates expect it."""
        return for_template(self.call_id, flat_name(self.namespace, self.name), input_arguments(self.input))


class CallOutputItem(BaseModel):
    """The result of a call, of a function or a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"] = "function_call_output"
    call_id: str
    output: Content


class ReferenceItem(BaseModel):
    """An item of an earlier, stored response."""

    type: Literal["item_reference"] = "item_reference"
    id: str


class UnknownItem(BaseModel):
    """An item of an unsupported type, which the gateway ignores; `type` is the item's own."""

    type: str


def _kind(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if not isinstance(value, dict):
        return "a message"
    kind = value.get("type") or ("message" if "role" in value else "item_reference" if "id" in value else "message")
    return f"a {kind}" if f"a {kind}" in _KINDS else "an unknown item"


# The tags are no identifiers, so that errors name `input[0].content` and not a class of ours.
_KINDS: Final = (
    *("a message", "a reasoning", "a item_reference", "a function_call", "a custom_tool_call"),
    *("a function_call_output", "a custom_tool_call_output"),
)
Item = Annotated[
    Annotated[MessageItem, Tag("a message")]
    | Annotated[ReasoningItem, Tag("a reasoning")]
    | Annotated[CallItem, Tag("a function_call")]
    | Annotated[CustomCallItem, Tag("a custom_tool_call")]
    | Annotated[CallOutputItem, Tag("a function_call_output")]
    | Annotated[CallOutputItem, Tag("a custom_tool_call_output")]
    | Annotated[ReferenceItem, Tag("a item_reference")]
    | Annotated[UnknownItem, Tag("an unknown item")],
    Discriminator(_kind),
]


_CALLS: Final = (CallItem, CustomCallItem)


class _Turn:
    """The assistant's message while its items are read."""

    def __init__(self) -> None:
        self.thinking: list[str] = []
        self.texts: list[str] = []
        self.calls: list[dict[str, object]] = []

    def spoke(self) -> bool:
        """Whether more text would begin another turn."""
        return bool(self.texts) and not self.calls

    def message(self) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": "".join(self.texts)}
        if self.thinking:
            message["reasoning_content"] = "\n".join(self.thinking)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def messages(items: Iterable[Item]) -> tuple[dict[str, object], ...]:
    """The conversation as `requests.Conversation` has it, without references, unknown items and calls cut off.

    Thinking, text and calls in a row are one message of the assistant; text after text alone begins another.
    """
    result: list[dict[str, object]] = []
    turn: _Turn | None = None
    for item in items:
        if isinstance(item, ReferenceItem | UnknownItem) or (isinstance(item, _CALLS) and item.cut):
            continue
        assistant = not isinstance(item, CallOutputItem) and (
            not isinstance(item, MessageItem) or item.role == "assistant"
        )
        if turn is not None and (not assistant or (turn.spoke() and not isinstance(item, _CALLS))):
            result.append(turn.message())
            turn = None
        if assistant and turn is None:
            turn = _Turn()
        match item:
            case ReasoningItem() if turn is not None:
                turn.thinking += filter(None, [item.text()])
            case CallItem() | CustomCallItem() if turn is not None:
                turn.calls.append(item.openai())
            case MessageItem() if turn is not None:
                turn.texts.append(item.content)
            case MessageItem():
                result.append({"role": item.role, "content": item.content})
            case CallOutputItem():
                result.append({"role": "tool", "tool_call_id": bare(item.call_id), "content": item.output})
    if turn is not None:
        result.append(turn.message())
    return tuple(result)


def unknown_kinds(items: Sequence[Item]) -> list[str]:
    """The types of the items that the gateway ignores, each once."""
    return list(dict.fromkeys(item.type for item in items if isinstance(item, UnknownItem)))
