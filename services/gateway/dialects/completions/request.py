"""A request for completions of a text as clients send it, checked."""

from dataclasses import replace
from typing import Any, Final

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from services.gateway.errors import invalid
from services.gateway.http.bodies import checked, parse_object
from services.gateway.requests.fields import GenerationFields, StreamOptions
from services.gateway.requests.output_fields import OutputFields
from services.gateway.requests.types import Document, GenerationRequest
from services.gateway.requests.unsupported_fields import refuse_unsupported

# OpenAI's and vLLM's default, on which clients rely; a text, unlike a chat, may never end by itself.
DEFAULT_TOKENS: Final = 16
MAX_ANSWERS: Final = 128  # one request must not fill the queue of all others
_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"})
_OWN: Final = frozenset({"echo", "best_of"})
_PROMPT: Final = "must be a string, token ids, or a list of either"

Text = str | tuple[int, ...]


class CompletionRequest(GenerationFields, OutputFields):
    """The body of POST /v1/completions. Without a limit an answer has 16 tokens at most; -1: no limit."""

    prompt: str | list[str] | list[int] | list[list[int]]
    n: int = Field(1, ge=1, le=8)
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20)  # 0: the chosen token's only
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _texts(cls, value: object, _: Any) -> object:
        # Not pydantic's union: a union would try every form on prompts of many thousand tokens, and name none of them.
        if isinstance(value, str) or _ids(value):
            return value
        if not isinstance(value, list) or not value or not all(isinstance(one, str) or _ids(one) for one in value):
            raise PydanticCustomError("prompt", _PROMPT)
        return value

    @field_validator("logprobs", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return None if value is False else value

    @property
    def texts(self) -> tuple[Text, ...]:
        """The prompts, one or many."""
        prompt: Any = self.prompt
        many = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
        return tuple(one if isinstance(one, str) else tuple(one) for one in many)

    def generation(self) -> GenerationRequest:
        """The request in no dialect, its seed decided. Raises a 400 `ApiError` for contradicting fields."""
        return replace(
            self.asking(*(Document(content=text) for text in self.texts)),
            choices=self.n,
            max_tokens=self.limit() if self.model_fields_set & _LIMITS else DEFAULT_TOKENS,
            top_logprobs=-1 if self.logprobs is None else self.logprobs,
            output=self.output(),
        )


def _ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def parse_completion(data: bytes) -> CompletionRequest:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unsupported({name: value for name, value in payload.items() if name not in _OWN})
    request = checked(CompletionRequest, payload)
    if request.best_of not in (None, request.n):
        raise invalid(
            "best_of",
            "'best_of' must be equal to 'n': the gateway returns every answer that it generates.",
            "unsupported_parameter",
        )
    if len(request.texts) * request.n > MAX_ANSWERS:
        raise invalid("prompt", f"'prompt': at most {MAX_ANSWERS} answers can be asked for at once.")
    if request.echo and request.logprobs is not None:
        sentence = "'logprobs' is not supported together with 'echo': the prompt's tokens have none."
        raise invalid("logprobs", sentence, "unsupported_parameter")
    return request
