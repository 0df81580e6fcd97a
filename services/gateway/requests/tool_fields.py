"""Tools and which of them to call, as OpenAI's chat has them."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from services.gateway.errors import invalid
from services.gateway.requests.schemas import SchemaObject, parameters, refuse_open
from services.gateway.requests.types import Tool, ToolChoice

_MODES: Final[dict[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral's word
}
_FORMS: Final = '"auto", "none", "required", a function\'s name in OpenAI\'s form, or "allowed_tools"'


class DeclaredFunction(BaseModel):
    """What a tool does. Arguments always match the schema, and `strict` asks for a schema that leaves nothing open."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: SchemaObject | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _closed(self) -> "DeclaredFunction":
        if self.strict:
            refuse_open(self.parameters)
        return self

    def tool(self, name: str) -> Tool:
        """As the model knows it, under this name."""
        schema = parameters(self.parameters, self.strict)
        return Tool(name=name, description=self.description or "", parameters=schema)


class FunctionField(DeclaredFunction):
    """A function in OpenAI's nesting."""

    name: str = Field(min_length=1, max_length=256)


class FunctionTool(BaseModel):
    """A function among `tools`."""

    type: Literal["function"] = "function"
    function: FunctionField


class ForeignTool(BaseModel):
    """A tool of an unsupported type, which the gateway ignores."""

    type: str


def _kind(value: Any) -> str:
    kind = value.get("type", "function") if isinstance(value, dict) else getattr(value, "type", "function")
    return "a function" if kind == "function" else "another tool"


# The tags are no identifiers, so that errors name `tools[0].function` and not a class of ours.
ToolField = Annotated[
    Annotated[FunctionTool, Tag("a function")] | Annotated[ForeignTool, Tag("another tool")], Discriminator(_kind)
]


class ToolFields(BaseModel):
    """The fields of a chat request."""

    tools: list[ToolField] = Field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool | None = None

    @field_validator("tools")
    @classmethod
    def _distinct(cls, value: list[ToolField]) -> list[ToolField]:
        names = [tool.function.name for tool in value if isinstance(tool, FunctionTool)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PydanticCustomError("tools", "there is more than one tool called '{name}'", {"name": twice[:64]})
        return value

    def offered(self) -> tuple[Tool, ...]:
        """The tools in no dialect."""
        return tuple(one.tool(one.name) for one in self._functions())

    def foreign_tools(self) -> list[str]:
        """What the gateway ignores of `tools`, one line for each type."""
        kinds = dict.fromkeys(tool.type[:64] for tool in self.tools if isinstance(tool, ForeignTool))
        return [f"tools of type '{kind}' are ignored" for kind in kinds]

    def _functions(self) -> list[FunctionField]:
        return [tool.function for tool in self.tools if isinstance(tool, FunctionTool)]

    def choice(self) -> ToolChoice:
        """Which of them to call. Raises a 400 `ApiError` that names `tool_choice`."""
        mode, names = _chosen(self.tool_choice)
        offered = {function.name for function in self._functions()}
        missing = next((name for name in names if name not in offered), None)
        if missing is not None:
            raise invalid("tool_choice", f"'tool_choice': there is no tool called '{missing[:64]}'.")
        if mode == "required" and not offered:
            raise invalid("tool_choice", "'tool_choice' requires a call, but there are no 'tools'.")
        # A client that names one function expects one call of it.
        single = isinstance(self.tool_choice, dict) and self.tool_choice.get("type") != "allowed_tools"
        parallel = self.parallel_tool_calls if self.parallel_tool_calls is not None else not single
        return ToolChoice(mode=mode, names=names, parallel=parallel)


def _chosen(value: str | dict[str, Any]) -> tuple[Literal["auto", "none", "required"], tuple[str, ...]]:
    if isinstance(value, str):
        if value in _MODES:
            return _MODES[value], ()
    elif value.get("type") == "function":
        name = _name(value)
        if name is not None:
            return "required", (name,)
    elif value.get("type") == "allowed_tools":
        allowed = value.get("allowed_tools", value)
        tools = allowed.get("tools") if isinstance(allowed, dict) else None
        mode = allowed.get("mode", "auto") if isinstance(allowed, dict) else None
        names = [_name(tool) for tool in tools] if isinstance(tools, list) and tools else [None]
        if mode in ("auto", "required") and None not in names:
            return mode, tuple(name for name in names if name is not None)
    raise invalid("tool_choice", f"'tool_choice' must be {_FORMS}.")


def _name(value: object) -> str | None:
    """The name in `{"function": {"name": …}}`, or beside the type as in the Responses API."""
    function = value.get("function", value) if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None
