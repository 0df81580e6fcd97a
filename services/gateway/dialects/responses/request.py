"""A Responses request as clients send it, checked.

The gateway refuses, by name, an option that it does not support and that would change the answer's meaning. It ignores,
with a warning, tools and items of types that only OpenAI's own service has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from services.gateway.dialects.responses.items import Item, messages, unknown_kinds
from services.gateway.dialects.responses.tools import Toolbox
from services.gateway.errors import invalid
from services.gateway.http.bodies import checked, parse_object
from services.gateway.requests.fields import PRESENT, GenerationFields
from services.gateway.requests.output_fields import ANY_OBJECT, OutputFields, named_output
from services.gateway.requests.reasoning_fields import ReasoningFields, ReasoningOptions
from services.gateway.requests.schemas import SchemaObject
from services.gateway.requests.types import Conversation, GenerationRequest, Output, ToolChoice
from services.gateway.requests.unsupported_fields import refuse_unsupported

_LOGPROBS = "message.output_text.logprobs"
_SEALED = "reasoning.encrypted_content"


def _said(value: object) -> object:
    """A text as the user's message, also an empty one, which some clients send to warm the model up."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Input = Annotated[list[Item] | None, BeforeValidator(_said, json_schema_input_type=str | list[Item] | None)]


class TextFormat(BaseModel):
    """What the answer's text must be."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "output"
    description: str | None = None
    schema_: SchemaObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(BaseModel):
    """The `text` field; `verbosity` has no effect, because models here cannot be told how verbose to be."""

    format: Annotated[TextFormat, PRESENT] = TextFormat()
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningField(ReasoningOptions):
    """The `reasoning` field. The gateway returns the thinking itself, so it makes no summary."""

    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesRequest(GenerationFields, OutputFields, ReasoningFields):
    """The body of POST /v1/responses."""

    input: Input = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool = True
    stream: bool = False
    tools: list[Any] = Field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool | None = None
    text: Annotated[TextOptions, PRESENT] = TextOptions()
    reasoning: Annotated[ReasoningField, PRESENT] = ReasoningField()
    top_logprobs: int = Field(0, ge=0, le=20)
    include: list[str] = Field(default_factory=list)
    metadata: dict[str, str] = Field(default_factory=dict)
    truncation: Literal["auto", "disabled"] = "disabled"
    background: bool = False

    @property
    def logprobs(self) -> bool:
        """Whether the text's tokens are given with their log-probabilities."""
        return _LOGPROBS in self.include or self.top_logprobs > 0

    @property
    def sealed(self) -> bool:
        """Whether the answer has the thinking in the form that clients send back instead of storing it."""
        return _SEALED in self.include

    def generation(self, box: Toolbox, choice: ToolChoice, items: Iterable[Item]) -> GenerationRequest:
        """The request in no dialect, over all `items` of the conversation; its seed is decided here."""
        conversation: list[Mapping[str, object]] = [*messages(items)]
        if self.instructions:
            conversation.insert(0, {"role": "system", "content": self.instructions})
        prompt = Conversation(messages=tuple(conversation), template_variables=self.chat_template_kwargs)
        return replace(
            self.asking(prompt),
            top_logprobs=self.top_logprobs if self.logprobs else -1,
            tools=tuple(box.tools.values()),
            tool_choice=choice,
            output=self.output(),
            reasoning=self.thought(),
        )

    def warnings(self, box: Toolbox) -> list[str]:
        """What the gateway ignored, one line each."""
        lines = [f"tools of type '{kind}' are ignored" for kind in box.dropped]
        lines += [f"items of type '{kind[:64]}' are ignored" for kind in unknown_kinds(self.input or [])]
        if self.truncation == "auto":
            lines.append("truncation 'auto' is not supported: an input that is too long is refused")
        return lines

    def output(self) -> Output | None:
        """What the text must match. Raises a 400 `ApiError` if two fields ask for something."""
        other, asked = super().output(), self.text.format
        if asked.type == "text":
            return other
        if other is not None:
            raise invalid(other.param, f"'text.format' and '{other.param}' cannot be asked for together.")
        if asked.type == "json_object":
            return Output(kind="json", source=ANY_OBJECT, param="text.format")
        return named_output(asked.schema_ or {}, asked.strict, "text.format.schema")


def parse_responses(data: bytes) -> ResponsesRequest:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unsupported(payload)
    for name in ("conversation", "prompt"):
        if name in payload:
            raise invalid(
                name, f"'{name}' refers to an object that only OpenAI's service keeps.", "unsupported_parameter"
            )
    request = checked(ResponsesRequest, payload)
    if request.background and not request.store:
        raise invalid("background", "'background' needs 'store' to be true: clients read the response from the store.")
    if request.input is None and request.previous_response_id is None:
        raise invalid("input", "'input' is required.", "missing_required_parameter")
    if not request.input and not request.instructions and request.previous_response_id is None:
        raise invalid("input", "'input' must not be an empty list.")
    if request.text.format.type == "json_schema" and request.text.format.schema_ is None:
        raise invalid("text.format.schema", "'text.format.schema' is required.", "missing_required_parameter")
    return request
