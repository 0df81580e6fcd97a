"""What a format provides, and the format of models without one: plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.errors import invalid
from services.gateway.formats.parts import PartParser, PlainParser
from services.gateway.requests.types import Reasoning, Tool, ToolChoice


@dataclass(frozen=True, slots=True)
class ThinkingSpan:
    """The texts around a model's thinking, and what to write to make it stop (it ends with `end`)."""

    start: str
    end: str
    close: str


class Format(Protocol):
    """One model's way to write. `marks` are the texts of control tokens that the parser needs."""

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> tuple[str, ...]: ...
    @property
    def span(self) -> ThinkingSpan | None: ...
    @property
    def takes_tools(self) -> bool:
        """Whether the chat template explains tools; if not, `instructions` do."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """How to call these tools, for a model whose chat template does not say it; "" if it does."""

    def call_id(self, id: str) -> str:
        """The id of a tool call in the shape that the chat template insists on; the same for the same id."""

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        """The variables that make the chat template think as asked."""

    def budget(self, reasoning: Reasoning) -> int | None:
        """The most tokens that thinking may take; None: no bound."""

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        """A fresh parser; `opened`: the prompt ends inside the thinking span."""

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        """A Lark grammar of the whole answer, "" if anything goes. `output`: the text must match the rule `@output`.

        Raises a 400 `ApiError` for a choice that it cannot enforce.
        """


def callable_tools(tools: Sequence[Tool], choice: ToolChoice) -> dict[str, Tool]:
    """The tools that the choice leaves, by name."""
    if choice.mode == "none":
        return {}
    return {tool.name: tool for tool in tools if not choice.names or tool.name in choice.names}


class PlainFormat:
    """No thinking and no tools; a required output is the whole answer."""

    name = "plain"
    marks: tuple[str, ...] = ()
    span: ThinkingSpan | None = None
    takes_tools = False

    def instructions(self, tools: Sequence[Tool]) -> str:
        return ""

    def call_id(self, id: str) -> str:
        return id

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        return {}

    def budget(self, reasoning: Reasoning) -> int | None:
        return None

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        return PlainParser()

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        if tools and choice.mode != "none":
            raise invalid("tools", "This model's chat template knows no tools.", "unsupported_parameter")
        return "start: @output" if output else ""
