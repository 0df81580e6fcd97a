"""From a checked request to jobs that fit: everything that can still fail with a 4xx fails here, before headers."""

import asyncio
import secrets
from dataclasses import dataclass

import msgspec

from services.gateway.errors import invalid
from services.gateway.models import Lexicon, ModelDirectory, ServedModel
from services.gateway.requests import GenerationRequest
from services.gateway.template import TemplateError
from shared.messages import Job
from shared.sampling import choice_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One job per choice, and what is needed to read their logs."""

    model: ServedModel
    lexicon: Lexicon
    jobs: tuple[Job, ...]
    stops: tuple[str, ...]

    @property
    def seed(self) -> int:
        return self.jobs[0].sampling.seed

    @property
    def prompt_tokens(self) -> int:
        return len(self.jobs[0].prompt)


async def prepare(request: GenerationRequest, directory: ModelDirectory, timeout_ms: int) -> Prepared:
    """Find the model, render and tokenise, check the bounds. Raises `ApiError` or redis-py's errors."""
    model = await directory.find(request.model)
    lexicon = await directory.lexicon(model.vocabulary)
    try:
        prompt = await asyncio.to_thread(lexicon.prompt, request.messages, request.template_variables)
    except TemplateError as error:
        raise invalid("messages", str(error), "chat_template_error") from None
    return Prepared(
        model=model,
        lexicon=lexicon,
        jobs=jobs(request, model, lexicon.n_tokens, prompt, timeout_ms),
        stops=request.stops,
    )


def jobs(
    request: GenerationRequest, model: ServedModel, n_tokens: int, prompt: tuple[int, ...], timeout_ms: int
) -> tuple[Job, ...]:
    """One job per choice, each with its own seed. Raises a 400 `ApiError` if the prompt leaves no room."""
    if not prompt:
        raise invalid("messages", "The messages render to an empty prompt.")
    foreign = [token for token, _ in request.sampling.logit_bias if not 0 <= token < n_tokens]
    if foreign:
        raise invalid("logit_bias", f"'logit_bias': token {foreign[0]} is not one of this model's {n_tokens} tokens.")
    room = model.n_ctx - len(prompt)
    if room < 1:
        raise invalid(
            "messages",
            f"prompt is too long: {len(prompt)} tokens > {model.n_ctx - 1} maximum. This model's maximum context length"
            f" is {model.n_ctx} tokens, and the answer needs at least one of them.",
            "context_length_exceeded",
        )
    return tuple(
        Job(
            request_id=f"req-{secrets.token_hex(16)}",
            model=model.name,
            prompt=prompt,
            sampling=msgspec.structs.replace(request.sampling, seed=choice_seed(request.sampling.seed, index)),
            max_tokens=min(room, request.max_tokens or room),
            speculation=request.speculation,
            top_logprobs=request.top_logprobs,
            cache_prompt=request.cache_prompt,
            timeout_ms=timeout_ms,
        )
        for index in range(request.choices)
    )
