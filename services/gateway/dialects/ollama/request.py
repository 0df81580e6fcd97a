"""Ollama's chat and generate requests as clients send them, checked.

The sampling defaults are Ollama's documented ones, except that the repetition penalty is off by default. Fields:
Ollama's `docs/api.md`.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from services.gateway.dialects.ollama.messages import OllamaMessage, OllamaTool, linked
from services.gateway.errors import invalid
from services.gateway.http.bodies import checked, parse_object
from services.gateway.requests.fields import PRESENT, GenerationFields
from services.gateway.requests.schemas import SchemaObject
from services.gateway.requests.types import Conversation, Document, GenerationRequest, Output, Prompt, Reasoning, Tool
from services.gateway.requests.unsupported_fields import refuse_unsupported


class OllamaOptions(GenerationFields):
    """Sampling parameters and limits; the gateway ignores options for loading a model (`num_ctx`, `num_gpu`, …)."""

    temperature: float = Field(0.8, ge=0, le=100)
    top_k: int = Field(40, ge=-1, lt=1 << 31)
    top_p: float = Field(0.9, ge=0, le=1)
    num_predict: int | None = Field(None, ge=-2)  # 0 and below: no limit
    repeat_last_n: int | None = Field(None, ge=-1)

    @model_validator(mode="after")
    def _window(self) -> "OllamaOptions":
        penalty = self.repeat_penalty or self.repetition_penalty or 1.0
        if self.repeat_last_n and self.repeat_last_n > 0 and penalty != 1.0:
            raise PydanticCustomError("window", "'repeat_last_n' must be -1 or 0: the penalty covers all tokens")
        return self

    def limit(self) -> int | None:
        """The most tokens that an answer may have; None: no limit."""
        own = self.num_predict if self.num_predict is not None and self.num_predict > 0 else None
        return min((limit for limit in (super().limit(), own) if limit is not None), default=None)


class OllamaBody(BaseModel):
    """What chat and generate share."""

    model: str | None = None
    stream: bool = True
    format: Literal["", "json"] | SchemaObject = ""
    options: Annotated[OllamaOptions, PRESENT] = Field(default_factory=lambda: OllamaOptions.model_validate({}))
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    keep_alive: str | int | float | None = None
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)

    def request(self, prompt: Prompt, tools: tuple[Tool, ...] = ()) -> GenerationRequest:
        """The request in no dialect, its seed decided."""
        return replace(
            self.options.asking(prompt),
            model=self.model,
            top_logprobs=self.top_logprobs if self.logprobs else -1,
            tools=tools,
            output=self._output(),
            reasoning=self._reasoning(),
        )

    def _output(self) -> Output | None:
        if self.format == "":
            return None
        schema = {"type": "object"} if self.format == "json" else self.format
        return Output(kind="json", source=schema, param="format")

    def _reasoning(self) -> Reasoning:
        if isinstance(self.think, str):
            return Reasoning(enabled=True, effort=self.think)
        return Reasoning(enabled=self.think)


class ChatBody(OllamaBody):
    """The body of POST /api/chat."""

    messages: list[OllamaMessage] = Field(default_factory=list)
    tools: list[OllamaTool] = Field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing to answer: the client only wants the model loaded."""
        return not self.messages

    def generation(self) -> GenerationRequest:
        """The request in no dialect."""
        prompt = Conversation(messages=linked(self.messages), template_variables=self.options.chat_template_kwargs)
        return self.request(prompt, tuple(tool.tool() for tool in self.tools))


class GenerateBody(OllamaBody):
    """The body of POST /api/generate."""

    prompt: str = ""
    system: str = ""
    raw: bool = False
    images: list[Any] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None

    @field_validator("images", "suffix", "template", "context", mode="before")
    @classmethod
    def _refused(cls, value: object) -> None:
        if value:
            raise PydanticCustomError("unsupported", "is not supported by this gateway")

    @property
    def empty(self) -> bool:
        """Nothing to answer: the client only wants the model loaded."""
        return not self.prompt

    def generation(self) -> GenerationRequest:
        """The request in no dialect."""
        if self.raw:
            return self.request(Document(content=self.prompt))
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = (*system, {"role": "user", "content": self.prompt})
        return self.request(Conversation(messages=messages, template_variables=self.options.chat_template_kwargs))


B = TypeVar("B", bound=OllamaBody)


def parse(data: bytes, kind: type[B]) -> B:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    options = payload.get("options")
    if isinstance(options, dict):
        refuse_unsupported({name: value for name, value in options.items() if value is not None})
    body = checked(kind, payload)
    if body.top_logprobs and not body.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    return body
