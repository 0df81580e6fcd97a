"""What a format has to give, and the format of models that have none: plain text and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.errors import invalid
from services.gateway.parts import PartParser, PlainParser
from services.gateway.requests import Reasoning, Tool, ToolChoice


@dataclass(frozen=True, slots=True)
class Span:
    """The texts around a model's thinking, and what to write to make it stop (it ends with `end`)."""

    start: str
    end: str
    close: str


class Format(Protocol):
    """One model's way to write. `marks` are the texts of control tokens that the parser has to see."""

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> tuple[str, ...]: ...
    @property
    def span(self) -> Span | None: ...
    def call_id(self, id: str) -> str:
        """The id of a tool call in the shape that the chat template insists on; the same for the same id."""

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        """What the chat template has to know to think as asked."""

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        """A fresh parser; `opened`: the prompt ends inside the thinking span."""

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        """A Lark grammar of the whole answer, "" if anything goes. `output`: the text must match the rule `@output`."""


class PlainFormat:
    """No thinking and no tools; a required output is the whole answer."""

    name = "plain"
    marks: tuple[str, ...] = ()
    span: Span | None = None

    def call_id(self, id: str) -> str:
        return id

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        return {}

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        return PlainParser()

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        if tools and choice.mode != "none":
            raise invalid("tools", "This model's chat template knows no tools.", "unsupported_parameter")
        return "start: @output" if output else ""
