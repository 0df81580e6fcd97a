"""The messages of an Anthropic request and the content blocks they are made of, checked one by one."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

_NOT_TEXT: Final = ("image", "container_upload")
_TEXTUAL: Final = ("document", "search_result")


class Block(BaseModel):
    """What all blocks share: unknown fields, such as `cache_control`, are ignored."""


class TextBlock(Block):
    """Text, from anyone."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Block):
    """An assistant's thinking. Its signature is not checked."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Block):
    """Encrypted thinking, which only Anthropic can read."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(Block):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any] = Field(default_factory=dict)


class ToolReferenceBlock(Block):
    """A tool that a search over tools found."""

    type: Literal["tool_reference"]
    tool_name: str


def _of(*kinds: str) -> Callable[[object], object]:
    """A check that a block has one of these types; its error says what is wrong with any other."""
    known = ", ".join(f"'{kind}'" for kind in kinds)

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(kind, str):
            raise PydanticCustomError("block", "a content block must be an object with a 'type'")
        if kind in _TEXTUAL:
            return {"type": "text", "text": _text_of(value)}
        if kind in _NOT_TEXT:
            message = "blocks of type '{kind}' are not supported: the models served here read text only"
            raise PydanticCustomError("block", message, {"kind": kind})
        if kind not in kinds:
            message = "blocks of type '{kind}' are not supported here, only {known}"
            raise PydanticCustomError("block", message, {"kind": kind[:64], "known": known})
        return value

    return check


def _text_of(block: dict[str, Any]) -> str:
    """The text of a document or a search result, after its title and its context where it has them."""
    source = block.get("source")
    if block["type"] == "search_result":
        text = block.get("content")
    elif isinstance(source, dict) and source.get("type") in ("text", "content"):
        text = source.get("data" if source["type"] == "text" else "content")
    else:
        message = "a document's 'source' must be of type 'text' or 'content': the models served here read text only"
        raise PydanticCustomError("block", message)
    parts = [text] if isinstance(text, str) else text
    if not isinstance(parts, list):
        raise PydanticCustomError("block", "a block of type '{kind}' has no text", {"kind": block["type"]})
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    said = [block.get("title"), block.get("context"), *texts]
    if not all(isinstance(text, str) for text in texts):
        message = "a block of type '{kind}' may hold only text: the models served here read text only"
        raise PydanticCustomError("block", message, {"kind": block["type"]})
    return "\n".join(text for text in said if isinstance(text, str) and text)


def _tag(value: Any) -> str:
    # Not an identifier, so that it does not look like a field's name in an error's location.
    return f"a {value['type'] if isinstance(value, dict) else value.type} block"


def _blocks(value: object) -> object:
    """A string is one text block; null means no block."""
    if value is None:
        return []
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


_Text = Annotated[TextBlock, BeforeValidator(_of("text"))]
TextContent = Annotated[list[_Text], BeforeValidator(_blocks, json_schema_input_type=str | list[_Text])]

_Result = Annotated[
    Annotated[TextBlock, Tag("a text block")] | Annotated[ToolReferenceBlock, Tag("a tool_reference block")],
    Discriminator(_tag),
    BeforeValidator(_of("text", "tool_reference")),
]


class ToolResultBlock(Block):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Annotated[list[_Result], BeforeValidator(_blocks, json_schema_input_type=str | list[_Result])] = Field(
        default_factory=list
    )
    is_error: bool | None = None


_User = Annotated[
    Annotated[TextBlock, Tag("a text block")] | Annotated[ToolResultBlock, Tag("a tool_result block")],
    Discriminator(_tag),
    BeforeValidator(_of("text", "tool_result")),
]
_Assistant = Annotated[
    Annotated[TextBlock, Tag("a text block")]
    | Annotated[ThinkingBlock, Tag("a thinking block")]
    | Annotated[RedactedThinkingBlock, Tag("a redacted_thinking block")]
    | Annotated[ToolUseBlock, Tag("a tool_use block")],
    Discriminator(_tag),
    BeforeValidator(_of("text", "thinking", "redacted_thinking", "tool_use")),
]


class UserMessage(BaseModel):
    """The user's text, and the results of the assistant's calls."""

    role: Literal["user"]
    content: Annotated[list[_User], BeforeValidator(_blocks, json_schema_input_type=str | list[_User])]


class AssistantMessage(BaseModel):
    """An earlier answer. As the last message of a request, it is the beginning of the answer."""

    role: Literal["assistant"]
    content: Annotated[list[_Assistant], BeforeValidator(_blocks, json_schema_input_type=str | list[_Assistant])]


class SystemMessage(BaseModel):
    """An instruction anywhere between the others, as Claude Code's reminders."""

    role: Literal["system"]
    content: TextContent


def _role(value: object) -> object:
    if not isinstance(value, dict):
        raise PydanticCustomError("message", "a message must be an object with 'role' and 'content'")
    if value.get("role") not in ("user", "assistant", "system"):
        raise PydanticCustomError("message", "a message's 'role' must be 'user', 'assistant' or 'system'")
    return value


def _sender(value: Any) -> str:
    return f"from {value['role'] if isinstance(value, dict) else value.role}"


Message = Annotated[
    Annotated[UserMessage, Tag("from user")]
    | Annotated[AssistantMessage, Tag("from assistant")]
    | Annotated[SystemMessage, Tag("from system")],
    Discriminator(_sender),
    BeforeValidator(_role),
]
