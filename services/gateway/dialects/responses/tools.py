"""The tools of a Responses request: functions and custom tools, also those in namespaces, as one flat list. Pure.

A function in a namespace gets the namespace before its name, so that the model cannot confuse two functions of one
name. The client gets calls under its own names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from services.gateway.dialects.responses.custom_tools import CustomTool
from services.gateway.errors import ApiError, invalid
from services.gateway.http.bodies import describe
from services.gateway.requests.tool_fields import DeclaredFunction
from services.gateway.requests.types import Tool, ToolChoice


def flat_name(namespace: str | None, name: str) -> str:
    """The name by which the model knows a function."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


_KINDS: Final[Mapping[str, type[DeclaredFunction] | type[CustomTool]]] = {
    "function": DeclaredFunction,
    "custom": CustomTool,
}


class DeclaredTool(NamedTuple):
    """A tool as the client knows it."""

    namespace: str | None
    name: str
    kind: str = "function"


@dataclass(slots=True)
class Toolbox:
    """What the model may call. `echo` holds the supported tools as the client sent them, `dropped` the types of the
    others."""

    tools: dict[str, Tool] = field(default_factory=dict)
    origins: dict[str, DeclaredTool] = field(default_factory=dict)
    echo: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def find(self, name: str, namespace: str | None = None) -> str | None:
        """The flat name of a function that the client names, in a namespace or not."""
        flat = flat_name(namespace, name)
        if flat in self.tools:
            return flat
        inner = [known for known, origin in self.origins.items() if origin.name == name and namespace is None]
        return inner[0] if len(inner) == 1 else None

    def add(self, declared: Mapping[str, Any], param: str, namespace: str | None = None) -> bool:
        """Add a function or a custom tool; False for a tool of another type.

        Raises a 400 `ApiError` for a malformed one.
        """
        kind = str(declared.get("type"))
        if kind not in _KINDS:
            self.dropped.append(kind[:64])
            return False
        try:
            tool = _KINDS[kind].model_validate(_flat(declared))
        except ValidationError as error:
            raise _within(param, describe(error)) from None
        name = flat_name(namespace, tool.name)
        if name in self.tools:
            raise invalid(param, f"'{param}': there is another tool named '{name[:200]}'.")
        self.tools[name] = tool.tool(name)
        self.origins[name] = DeclaredTool(namespace, tool.name, kind)
        return True


def toolbox(declared: Sequence[Any]) -> Toolbox:
    """The tools of a request. Raises a 400 `ApiError` that names the one at fault."""
    box = Toolbox()
    for index, tool in enumerate(declared):
        param = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise invalid(param, f"'{param}' must be an object with a 'type'.")
        if tool.get("type") == "namespace":
            _add_namespace(box, tool, param)
        elif box.add(tool, param):
            box.echo.append(_official(tool))
    box.dropped = list(dict.fromkeys(box.dropped))
    return box


def _add_namespace(box: Toolbox, declared: Mapping[str, Any], param: str) -> None:
    name, inner = declared.get("name"), declared.get("tools", [])
    if not isinstance(name, str) or not name:
        raise invalid(f"{param}.name", f"'{param}.name' must be a string that is not empty.")
    if not isinstance(inner, list):
        raise invalid(f"{param}.tools", f"'{param}.tools' must be a list.")
    kept = []
    for index, tool in enumerate(inner):
        place = f"{param}.tools[{index}]"
        if not isinstance(tool, dict):
            raise invalid(place, f"'{place}' must be an object with a 'type'.")
        if box.add(tool, place, name):
            kept.append(_official(tool))
    box.echo.append({**declared, "description": declared.get("description") or "", "tools": kept})


def _official(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as OpenAI's clients read it back: flat."""
    return {"strict": None, "parameters": None, **_flat(tool)} if tool["type"] == "function" else _flat(tool)


def _within(param: str, error: ApiError) -> ApiError:
    place = f"{param}.{error.param}" if error.param else param
    return invalid(place, error.message.replace(f"'{error.param}'", f"'{place}'", 1), error.code)


def tool_choice(value: Any, parallel: bool | None, box: Toolbox) -> ToolChoice:
    """Which of the tools may, must or must not be called. Raises a 400 `ApiError`."""
    mode: Any = value
    names: tuple[str, ...] = ()
    if isinstance(value, dict):
        mode, names = _named(value, box)
    if mode not in ("auto", "none", "required"):
        kinds = '"auto", "none", "required", or an object of type "function", "custom" or "allowed_tools"'
        raise invalid("tool_choice", f"'tool_choice' must be {kinds}.")
    if mode == "required" and not box.tools:
        raise invalid("tool_choice", "'tool_choice' asks for a call, but no function or custom tool is among 'tools'.")
    # A client that names one function expects one call of it.
    single = isinstance(value, dict) and value.get("type") in _KINDS
    return ToolChoice(mode=mode, names=names, parallel=not single if parallel is None else parallel)


def official_choice(value: Any) -> Any:
    """A checked choice as OpenAI's clients read it back."""
    if not isinstance(value, dict):
        return value
    return {"mode": "auto", **value} if value["type"] == "allowed_tools" else _flat(value)


def _flat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool with its name beside its type; a client may have nested it as in chat completions."""
    kind = str(tool.get("type"))
    nested = tool.get(kind if kind in _KINDS else "function")
    return {**nested, "type": kind} if isinstance(nested, dict) else dict(tool)


def _named(choice: Mapping[str, Any], box: Toolbox) -> tuple[Any, tuple[str, ...]]:
    kind = choice.get("type")
    if kind in _KINDS:
        return "required", (_name(choice, box, "tool_choice"),)
    if kind != "allowed_tools":
        raise invalid("tool_choice", f"'tool_choice' of type '{str(kind)[:64]}' is not supported.")
    allowed = choice.get("tools")
    if not isinstance(allowed, list) or not all(isinstance(tool, dict) for tool in allowed):
        raise invalid("tool_choice.tools", "'tool_choice.tools' must be a list of objects.")
    functions = [tool for tool in allowed if tool.get("type") in _KINDS]
    names = tuple(_name(tool, box, "tool_choice.tools") for tool in functions)
    mode = choice.get("mode", "auto")
    if not names:
        # An empty list would allow any tool, which is the opposite of the request.
        if mode == "required":
            raise invalid("tool_choice.tools", "'tool_choice.tools' must name a function when a call is required.")
        return "none", ()
    return mode if mode in ("auto", "required") else None, names


def _name(tool: Mapping[str, Any], box: Toolbox, param: str) -> str:
    given = _flat(tool)
    name = given.get("name")
    namespace = given.get("namespace")
    found = box.find(str(name), namespace if isinstance(namespace, str) else None) if name else None
    if found is None:
        raise invalid(param, f"'{param}' names the tool '{str(name)[:200]}', which is not among 'tools'.")
    return found
