"""Tools as Anthropic's clients offer them, and which of them a model served here can call."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from services.gateway.errors import invalid
from services.gateway.requests.schemas import SchemaObject, refuse_open
from services.gateway.requests.types import Tool, ToolChoice


class AnthropicTool(BaseModel):
    """A tool of the client with its schema, or one that Anthropic defines, with a `type` and no schema."""

    name: str | None = Field(None, min_length=1, max_length=256)
    type: str | None = None
    description: str | None = None
    input_schema: SchemaObject | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _closed(self) -> "AnthropicTool":
        if self.strict:
            refuse_open(self.input_schema)
        return self


class ToolChoiceField(BaseModel):
    """Whether and which tools must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def offered(definitions: Sequence[AnthropicTool]) -> tuple[Tool, ...]:
    """The tools that the model is told about. Raises a 400 `ApiError` that names a definition at fault."""
    tools: dict[str, Tool] = {}
    for index, definition in enumerate(definitions):
        if _foreign(definition):
            continue
        for field, value in (("name", definition.name), ("input_schema", definition.input_schema)):
            if value is None:
                param = f"tools[{index}].{field}"
                raise invalid(param, f"'{param}' is required.", "missing_required_parameter")
        assert definition.name is not None
        if definition.name in tools:
            raise invalid(f"tools[{index}].name", f"'tools': there are two tools named '{definition.name}'.")
        tools[definition.name] = Tool(
            name=definition.name,
            description=definition.description or "",
            parameters=definition.input_schema or {},
        )
    return tuple(tools.values())


def left_out(definitions: Sequence[AnthropicTool]) -> list[str]:
    """The names of the tools that the gateway ignores because they need Anthropic's servers or models."""
    return [definition.name or definition.type or "" for definition in definitions if _foreign(definition)]


def chosen(field: ToolChoiceField | None, tools: Sequence[Tool]) -> ToolChoice:
    """The choice. Raises a 400 `ApiError` if it asks for a tool that is not offered."""
    if field is None:
        return ToolChoice()
    parallel = not field.disable_parallel_tool_use
    if field.type in ("auto", "none"):
        return ToolChoice(mode="none" if field.type == "none" else "auto", parallel=parallel)
    if not tools:
        raise invalid("tool_choice", f"'tool_choice' of type '{field.type}' needs 'tools' that the model can call.")
    if field.type == "any":
        return ToolChoice(mode="required", parallel=parallel)
    if field.name is None:
        raise invalid("tool_choice.name", "'tool_choice.name' is required.", "missing_required_parameter")
    if field.name not in {tool.name for tool in tools}:
        raise invalid("tool_choice.name", f"'tool_choice.name': no tool '{field.name[:64]}' can be called.")
    return ToolChoice(mode="required", names=(field.name,), parallel=parallel)


def _foreign(definition: AnthropicTool) -> bool:
    return definition.type not in (None, "custom") and definition.input_schema is None
