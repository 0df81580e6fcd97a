"""A request of Anthropic's Messages API as clients send it, checked.

Fields that only steer Anthropic's own service (`metadata`, `service_tier`, `context_management`, `cache_control` …) are
ignored. The gateway ignores what only Anthropic's servers can do, such as web search, and warns. It refuses
conversations that those servers keep, with the error on which the client sends the whole conversation.
"""

from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, Field

from services.gateway.dialects.messages.blocks import Message, TextContent
from services.gateway.dialects.messages.conversation import conversation
from services.gateway.dialects.messages.tools import AnthropicTool, ToolChoiceField, chosen, left_out, offered
from services.gateway.errors import invalid
from services.gateway.http.bodies import checked, parse_object
from services.gateway.http.error_shapes import NO_THREADS
from services.gateway.requests.fields import GenerationFields
from services.gateway.requests.output_fields import OutputFields
from services.gateway.requests.reasoning_fields import Effort
from services.gateway.requests.schemas import SchemaObject
from services.gateway.requests.types import GenerationRequest, Output, Reasoning
from services.gateway.requests.unsupported_fields import refuse_unsupported

# How the names of Anthropic's own models begin. Its clients have them built in, for small tasks of their own beside the
# user's choice.
_ANTHROPICS: Final = "claude-"


class ThinkingConfig(BaseModel):
    """How to think: up to a budget in tokens, not at all, or as the model does by default."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=1)
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(BaseModel):
    """What the answer's text must match."""

    type: Literal["json_schema"]
    definition: SchemaObject = Field(alias="schema")


class OutputConfig(BaseModel):
    """How much effort to make, and in which form to answer."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class MessagesPrompt(GenerationFields, OutputFields):
    """The body of POST /v1/messages/count_tokens."""

    messages: list[Message] = Field(min_length=1)
    system: TextContent = Field(default_factory=list)
    stop_sequences: tuple[str, ...] = ()
    tools: list[AnthropicTool] = Field(default_factory=list)
    tool_choice: ToolChoiceField | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig = OutputConfig()
    output_format: OutputFormat | None = None  # older clients' name for `output_config.format`
    mcp_servers: list[dict[str, Any]] = Field(default_factory=list)
    container: Any = None
    thread: Any = None
    stream: bool = False

    @property
    def warnings(self) -> list[str]:
        """What the gateway does differently from the request."""
        tools = [f"tool '{name}' is not supported here and was ignored" for name in left_out(self.tools)]
        fields = ("mcp_servers", "container")
        others = [f"'{name}' is not supported here and was ignored" for name in fields if getattr(self, name)]
        return [*tools, *others]

    @property
    def shows_thinking(self) -> bool:
        """Whether the client wants the text of the thinking, not only its signature."""
        return self.thinking is None or self.thinking.display != "omitted"

    def _outputs(self) -> list[Output | None]:
        forms = (("output_config.format", self.output_config.format), ("output_format", self.output_format))
        asked = [Output(kind="json", source=form.definition, param=f"{name}.schema") for name, form in forms if form]
        return [*asked, *super()._outputs()]

    def generation(self) -> GenerationRequest:
        """The request in no dialect, its seed decided. Raises a 400 `ApiError` where fields contradict each other."""
        tools = offered(self.tools)
        return replace(
            self.asking(conversation(self.system, self.messages, self.chat_template_kwargs)),
            stops=(*self.stop_sequences, *self.stop),
            tools=tools,
            tool_choice=chosen(self.tool_choice, tools),
            output=self.output(),
            reasoning=self._reasoning(),
            or_default=self.model is not None and self.model.startswith(_ANTHROPICS),
        )

    def _reasoning(self) -> Reasoning:
        effort = self.output_config.effort
        if self.thinking is None:
            # As in Anthropic's API: a client that did not ask for thinking takes the first block for the answer.
            return Reasoning(enabled=False, effort=effort)
        enabled = {"enabled": True, "disabled": False, "adaptive": None}[self.thinking.type]
        return Reasoning(enabled=enabled, effort=effort, budget=self.thinking.budget_tokens if enabled else None)


class MessagesRequest(MessagesPrompt):
    """The body of POST /v1/messages.

    The room in the context limits `max_tokens`, because clients send the limits of Anthropic's models.
    """

    max_tokens: int = Field(ge=0)


B = TypeVar("B", bound=MessagesPrompt)


def parse_messages(data: bytes, kind: type[B]) -> B:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unsupported(payload)
    if payload.get("thread"):
        sentence = "'thread' is not supported: the gateway keeps no conversations; send all messages."
        raise invalid("thread", sentence, NO_THREADS)
    return checked(kind, payload)
