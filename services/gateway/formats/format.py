"""What a format provides, and the format of models without one: plain text."""

from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.formats.parts import PartParser, PlainParser
from services.gateway.formats.thinking import ThinkingSpan, ThinkingStyle
from services.gateway.requests.types import Reasoning, Tool, ToolChoice

_NO_THINKING: Final = ThinkingStyle()


class Format:
    """One model's way to write; by itself without thinking and tools, and a required output is the whole answer.

    `marks` are the texts of control tokens that the parser needs. `takes_tools`: the chat template explains tools; if
    it does not, `instructions` do.
    """

    name = "plain"
    marks: tuple[str, ...] = ()
    span: ThinkingSpan | None = None
    takes_tools = False

    def __init__(self, thinking: ThinkingStyle = _NO_THINKING) -> None:
        self._thinking = thinking

    def instructions(self, tools: Sequence[Tool]) -> str:
        """How to call these tools, for a model whose chat template does not say it; "" if it does."""
        return ""

    def call_id(self, id: str) -> str:
        """The id of a tool call in the shape that the chat template insists on; the same for the same id."""
        return id

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        """The variables that make the chat template think as asked."""
        return self._thinking.variables(reasoning)

    def budget(self, reasoning: Reasoning) -> int | None:
        """The most tokens that thinking may take; None: no bound."""
        return self._thinking.budget(reasoning)

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        """A fresh parser; `opened`: the prompt ends inside the thinking span."""
        return PlainParser()

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        """A Lark grammar of the whole answer, "" if anything goes. `output`: the text must match the rule `@output`.

        Raises a 400 `ApiError` for a choice that it cannot enforce.
        """
        return "start: @output" if output else ""


def callable_tools(tools: Sequence[Tool], choice: ToolChoice) -> dict[str, Tool]:
    """The tools that the choice leaves, by name."""
    if choice.mode == "none":
        return {}
    return {tool.name: tool for tool in tools if not choice.names or tool.name in choice.names}
