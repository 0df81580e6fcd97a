"""The fields that every dialect's body may have: sampling, seed, limits and our own options, under all their names.

Unknown fields are ignored, and null means absent.
"""

import secrets
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_core import PydanticCustomError

from services.gateway.requests.types import RESERVED, GenerationRequest, Prompt
from shared.wire.messages import Sampling, Speculation

MAX_STOP_CHARACTERS: Final = 16_384  # of all stop strings together: the event loop builds a table with a row for each
_MASK64: Final = (1 << 64) - 1


def present(value: object) -> object:
    """An object without its nulls, which mean that a field is absent; anything else as it is."""
    return {name: one for name, one in value.items() if one is not None} if isinstance(value, dict) else value


MaxTokens = Annotated[int | None, Field(ge=-1)]  # -1: no limit, as in llama.cpp and LM Studio; 0: no token
PRESENT: Final = BeforeValidator(present)


class StreamOptions(BaseModel):
    """How a stream is framed."""

    include_usage: bool = False
    continuous_usage_stats: bool = False  # vLLM's: usage so far in every chunk


class GenerationFields(BaseModel):
    """Fields have the names that clients use."""

    model: str | None = None
    max_tokens: MaxTokens = None
    max_completion_tokens: MaxTokens = None
    max_output_tokens: MaxTokens = None
    n_predict: MaxTokens = None
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
    logit_bias: dict[int, float | Literal[False]] = Field(
        default_factory=dict, description="What to add to a token's logit; `false`: the token never comes"
    )
    cache_prompt: bool = Field(
        True,
        description="Start from prefixes that are still in the KV cache, copy drafts from the caller's other requests;"
        " false does neither, and no other request gets anything of this one's text",
    )
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    speculative: Literal["auto"] | StrictBool = Field(
        "auto",
        description="`auto`: verify drafts where they pay; `true`: verify whatever drafts there are; `false`: none",
    )
    return_token_ids: bool = Field(False, description="Token ids beside the text (`token_ids`)")
    speculative_trace: bool = Field(
        False, description="Every token with its text and the drafter that guessed it (`trace`)"
    )

    @field_validator("stop", "stop_sequences", mode="before", check_fields=False)
    @classmethod
    def _stops(cls, value: object) -> object:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
            raise PydanticCustomError("stop", "must be a string or a list of strings")
        if sum(map(len, stops)) > MAX_STOP_CHARACTERS:
            sentence = "the stop strings may have at most {limit} characters together"
            raise PydanticCustomError("stop", sentence, {"limit": MAX_STOP_CHARACTERS})
        return tuple(filter(None, stops))

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
            raise PydanticCustomError("kwargs", "the gateway sets '{name}', so a request cannot", {"name": taken[0]})
        return value

    def sampling(self) -> Sampling:
        """The law, its seed decided."""
        penalty = self.repetition_penalty if self.repetition_penalty is not None else self.repeat_penalty
        return Sampling(
            seed=secrets.randbits(64) if self.seed in (None, -1) else int(self.seed or 0) & _MASK64,
            temperature=self.temperature,
            top_k=max(self.top_k, 0),
            # Sampling needs a positive mass, and OpenAI allows 0. Any tiny mass keeps only the best token.
            top_p=max(self.top_p, 1e-9),
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=1.0 if penalty is None else penalty,
            logit_bias=tuple(sorted((token, bias) for token, bias in self.logit_bias.items() if bias is not False)),
            banned=tuple(sorted(token for token, bias in self.logit_bias.items() if bias is False)),
        )

    def limit(self) -> int | None:
        """The most tokens that an answer may have; None: no limit."""
        limits = (self.max_tokens, self.max_completion_tokens, self.max_output_tokens, self.n_predict)
        return min((limit for limit in limits if limit is not None and limit >= 0), default=None)

    def asking(self, *prompts: Prompt) -> GenerationRequest:
        """A request for answers to these prompts with what the shared fields say, its seed decided."""
        return GenerationRequest(
            model=self.model,
            prompts=prompts,
            sampling=self.sampling(),
            max_tokens=self.limit(),
            stops=self.stop,
            speculation=_SPECULATION[self.speculative],
            cache_prompt=self.cache_prompt,
        )


_SPECULATION: Final[dict[str | bool, Speculation]] = {
    "auto": Speculation.AUTO,
    True: Speculation.ALWAYS,
    False: Speculation.OFF,
}


_BIAS: Final = TypeAdapter(tuple[int, float])


def _bias(pair: object) -> tuple[int, float | Literal[False]]:
    """A token and its bias, as llama-server takes them: `false` bans the token."""
    never = isinstance(pair, list | tuple) and len(pair) == 2 and pair[1] is False
    if isinstance(pair, list | tuple) and any(isinstance(one, bool) for one in pair) and not never:
        raise PydanticCustomError("logit_bias", "a bias must be a number, or false for never")
    try:
        token, bias = _BIAS.validate_python(pair)
    except ValidationError:
        raise PydanticCustomError("logit_bias", "each bias needs a token id and a number") from None
    if not -100 <= bias <= 100:
        raise PydanticCustomError("logit_bias", "a bias must lie between -100 and 100")
    return token, False if never else bias
