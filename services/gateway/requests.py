"""A chat request as clients send it, checked; and the request that every dialect turns its own into.

Unknown fields are ignored, null means absent, and a field that would change the answer but is not built is refused by
name, never dropped silently. Pure but for the fresh seed.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, TypeAdapter, ValidationError, field_validator
from pydantic_core import PydanticCustomError, from_json

from services.gateway.errors import ApiError, invalid
from services.gateway.template import RESERVED
from services.gateway.unbuilt import refuse_unbuilt
from shared.messages import Sampling, Speculation

MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 4096  # a matching table is built per stop on the event loop
_MASK64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What to generate, in no dialect. `model` None means the only one; `max_tokens` None means the room there is."""

    model: str | None
    messages: tuple[Mapping[str, object], ...]
    template_variables: Mapping[str, object]
    sampling: Sampling
    choices: int
    max_tokens: int | None
    stops: tuple[str, ...]
    top_logprobs: int  # -1: none; 0: the chosen token's only
    speculation: Speculation
    cache_prompt: bool


class Message(BaseModel):
    """One message of a conversation; content is text by the time it is here."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str = ""
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        if value is None:
            return ""
        return "\n".join(map(_part_text, value)) if isinstance(value, list) else value

    def variables(self) -> dict[str, object]:
        """The message as a template sees it: content, and of the rest only what the client sent."""
        return self.model_dump(exclude_none=True)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise PydanticCustomError("part", "a content part must be an object with 'type' and 'text'")
    if part.get("type") != "text":
        kind = str(part.get("type"))[:64]
        raise PydanticCustomError(
            "part", "content parts of type '{kind}' are not supported, only 'text'", {"kind": kind}
        )
    if not isinstance(part.get("text"), str):
        raise PydanticCustomError("part", "a content part of type 'text' must have a string 'text'")
    return str(part["text"])


class StreamOptions(BaseModel):
    """How a stream is framed."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


_MaxTokens = Annotated[int | None, Field(ge=-1)]  # -1: no limit, as llama.cpp and LM Studio have it


class ChatRequest(BaseModel):
    """The body of POST /v1/chat/completions. Field names are the clients'."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    messages: list[Message] = Field(min_length=1)
    model: str | None = None
    max_tokens: _MaxTokens = None
    max_completion_tokens: _MaxTokens = None
    max_output_tokens: _MaxTokens = None
    n_predict: _MaxTokens = None
    temperature: float = Field(1.0, ge=0, le=100)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(0, ge=-1, lt=1 << 31)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = Field(None, ge=-(1 << 63), le=_MASK64)
    stop: tuple[str, ...] = ()
    presence_penalty: float = Field(0.0, ge=-100, le=100)
    frequency_penalty: float = Field(0.0, ge=-100, le=100)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    repeat_penalty: float | None = Field(None, ge=0.01, le=100)
    logit_bias: dict[int, float] = Field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    n: int = Field(1, ge=1, le=8)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    cache_prompt: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    speculative: Literal["auto"] | StrictBool = "auto"
    return_token_ids: bool = False
    speculative_trace: bool = False

    @field_validator("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
    @classmethod
    def _some(cls, value: int | None) -> int | None:
        if value == 0:
            raise PydanticCustomError("max_tokens", "must be at least 1, or -1 for no limit")
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _stops(cls, value: object) -> object:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
            raise PydanticCustomError("stop", "must be a string or a list of strings")
        if len(stops) > MAX_STOPS:
            raise PydanticCustomError("stop", "at most {limit} stop strings are allowed", {"limit": MAX_STOPS})
        if not all(stops):
            raise PydanticCustomError("stop", "a stop string must not be empty")
        if max(map(len, stops), default=0) > MAX_STOP_CHARACTERS:
            raise PydanticCustomError(
                "stop", "a stop string may have {limit} characters", {"limit": MAX_STOP_CHARACTERS}
            )
        return tuple(stops)

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _biases(cls, value: object) -> object:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list):
            raise PydanticCustomError("logit_bias", "must be an object or a list of [token id, bias] pairs")
        return dict(map(_bias, pairs))

    @field_validator("chat_template_kwargs")
    @classmethod
    def _own_variables(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(RESERVED & value.keys())
        if taken:
            raise PydanticCustomError("kwargs", "'{name}' cannot be replaced", {"name": taken[0]})
        return value

    def generation(self) -> GenerationRequest:
        """The request in no dialect, its seed decided."""
        limits = [self.max_tokens, self.max_completion_tokens, self.max_output_tokens, self.n_predict]
        penalty = self.repetition_penalty if self.repetition_penalty is not None else self.repeat_penalty
        sampling = Sampling(
            seed=secrets.randbits(64) if self.seed in (None, -1) else int(self.seed or 0) & _MASK64,
            temperature=self.temperature,
            top_k=max(self.top_k, 0),
            # The law wants a positive mass; OpenAI allows 0. Any tiny mass keeps the best token alone.
            top_p=max(self.top_p, 1e-9),
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=1.0 if penalty is None else penalty,
            logit_bias=tuple(sorted(self.logit_bias.items())),
        )
        return GenerationRequest(
            model=self.model,
            messages=tuple(message.variables() for message in self.messages),
            template_variables=self.chat_template_kwargs,
            sampling=sampling,
            choices=self.n,
            max_tokens=min((limit for limit in limits if limit is not None and limit > 0), default=None),
            stops=self.stop,
            top_logprobs=self.top_logprobs if self.logprobs else -1,
            speculation=_SPECULATION[self.speculative],
            cache_prompt=self.cache_prompt,
        )


_SPECULATION: Final[dict[str | bool, Speculation]] = {
    "auto": Speculation.AUTO,
    True: Speculation.ALWAYS,
    False: Speculation.OFF,
}


_BIAS: Final = TypeAdapter(tuple[int, float])


def _bias(pair: object) -> tuple[int, float]:
    try:
        token, bias = _BIAS.validate_python(pair)
    except ValidationError:
        raise PydanticCustomError("logit_bias", "each bias needs a token id and a number") from None
    if not -100 <= bias <= 100:
        raise PydanticCustomError("logit_bias", "a bias must lie between -100 and 100")
    return token, bias


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data` without its nulls. Raises a 400 `ApiError`."""
    try:
        payload = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(None, f"The body is not valid JSON: {error}.", "invalid_json") from None
    if not isinstance(payload, dict):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")
    return {name: value for name, value in payload.items() if value is not None}


def parse_chat(data: bytes) -> ChatRequest:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unbuilt(payload)
    try:
        chat = ChatRequest.model_validate(payload)
    except ValidationError as error:
        raise describe(error) from None
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    return chat


def describe(error: ValidationError) -> ApiError:
    """The first finding of a failed validation as one clear line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # Union branches and validators append their own names to the location; clients know only their fields.
    location = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    if location[:1] == ["speculative"]:
        return invalid("speculative", "'speculative' must be \"auto\", true or false.")
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if first["type"] == "missing":
        return invalid(param, f"'{param}' is required.", "missing_required_parameter")
    return invalid(param, f"'{param}': {first['msg'][:1].lower()}{first['msg'][1:]}.")
