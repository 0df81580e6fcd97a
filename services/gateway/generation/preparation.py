"""From a checked request to jobs that fit: everything that can still fail with a 4xx fails here, before headers."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from services.gateway.errors import invalid
from services.gateway.formats.format import Format
from services.gateway.formats.parts import PartParser, PlainParser
from services.gateway.models.directory import ModelDirectory
from services.gateway.models.served_model import Lexicon, ServedModel
from services.gateway.prompts.rendering import first_call
from services.gateway.prompts.template import TemplateError
from services.gateway.requests.bounds import check_length
from services.gateway.requests.types import Conversation, Document, GenerationRequest, Prompt, Tool
from services.gateway.storage.kept_turns import KeptTurn
from services.gateway.storage.stores import Stores
from shared.law.sampling import choice_seed
from shared.wire.messages import Job, ThinkingLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What turns an answer's tokens into parts: the bytes of a token, the stop strings, and a new parser per choice."""

    piece: Callable[[int], bytes]
    stops: tuple[str, ...] = ()
    parser: Callable[[], PartParser] = PlainParser
    thinking_end: str = ""  # what ends the thinking in the text; empty if the model does not think


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One job per choice, and what is needed to read their logs."""

    model: ServedModel
    lexicon: Lexicon
    jobs: tuple[Job, ...]  # for each prompt in turn one per choice
    choices: int  # per prompt
    reading: Reading
    silent: bool = False  # no token is asked for: the prompt is read, and the one token that a job must have is dropped
    warnings: tuple[str, ...] = ()  # what the gateway does differently from the request

    @property
    def seed(self) -> int:
        return self.jobs[0].sampling.seed

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts; one with several choices counts once."""
        return sum(len(job.prompt) for job in self.jobs[:: self.choices])

    def traced(self, traceparent: str) -> "Prepared":
        """The same as part of a trace."""
        return replace(self, jobs=tuple(msgspec.structs.replace(job, traceparent=traceparent) for job in self.jobs))


async def prepare(request: GenerationRequest, directory: ModelDirectory, stores: Stores, timeout_ms: int) -> Prepared:
    """Find the model, render and tokenise, check the bounds. Raises `ApiError` or redis-py's errors."""
    model, lexicon, prompts = await read(request, directory, stores)
    # A document is only text, and so is its continuation: neither thinking nor calls.
    converses = request.converses
    format = lexicon.format if converses else Format()
    opened = converses and lexicon.opens(prompts[0])
    grammar = await _grammar(request, lexicon, format, opened)
    thinking = lexicon.thinking(format.budget(request.reasoning), opened) if converses else None
    return Prepared(
        model=model,
        lexicon=lexicon,
        jobs=tuple(
            job
            for prompt in prompts
            for job in jobs(request, model, lexicon.n_tokens, prompt, timeout_ms, grammar, thinking)
        ),
        choices=request.choices,
        reading=Reading(
            piece=lexicon.piece,
            stops=request.stops,
            parser=partial(format.parser, request.tools, request.tool_choice, opened=opened),
            thinking_end=format.span.end if format.span else "",
        ),
        silent=request.max_tokens == 0,
        warnings=_warnings(request, model),
    )


def _warnings(request: GenerationRequest, model: ServedModel) -> tuple[str, ...]:
    if not request.or_default or request.model is None or model.is_called(request.model):
        return ()
    return (f"'{request.model}' is not served here; the default model answers",)


async def count_tokens(request: GenerationRequest, directory: ModelDirectory, stores: Stores) -> int:
    """The lengths of the prompts, even if they do not fit. Raises `ApiError` or redis-py's errors."""
    _, _, prompts = await read(request, directory, stores)
    return sum(map(len, prompts))


async def read(
    request: GenerationRequest, directory: ModelDirectory, stores: Stores
) -> tuple[ServedModel, Lexicon, list[tuple[int, ...]]]:
    """The model, and every prompt as its tokens. Raises `ApiError` or redis-py's errors."""
    model = await directory.find(request.model, or_default=request.or_default)
    lexicon = await directory.lexicon(model.vocabulary)
    turns = await _turns(request, stores)
    prompts = [await asyncio.to_thread(_tokens, request, prompt, model, lexicon, turns) for prompt in request.prompts]
    return model, lexicon, prompts


async def _turns(request: GenerationRequest, stores: Stores) -> dict[str, KeptTurn]:
    """The kept turns that the conversation may have."""
    conversations = [prompt for prompt in request.prompts if isinstance(prompt, Conversation)]
    calls = [call for one in conversations for call in map(first_call, one.messages) if call]
    return await stores.turns.find(calls)


def _tokens(
    request: GenerationRequest, prompt: Prompt, model: ServedModel, lexicon: Lexicon, turns: Mapping[str, KeptTurn]
) -> tuple[int, ...]:
    check = partial(check_length, request.prompt_field, model.n_ctx, lexicon.longest)
    if isinstance(prompt, Document):
        check(len(prompt.content) if isinstance(prompt.content, str) else 0)
        tokens = lexicon.document(prompt.content)
        given = () if isinstance(prompt.content, str) else tokens
        foreign = next((token for token in given if not 0 <= token < lexicon.n_tokens), None)
        if foreign is not None:
            raise invalid("prompt", f"'prompt': {foreign} is not one of this model's {lexicon.n_tokens} tokens.")
        return tokens
    with _explained():
        return lexicon.prompt(prompt, *_context(request, prompt, lexicon), turns, check)


async def render(request: GenerationRequest, directory: ModelDirectory) -> str:
    """The request's conversation as the text that the model reads, BOS left to the tokeniser. Raises `ApiError`."""
    model = await directory.find(request.model)
    lexicon = await directory.lexicon(model.vocabulary)
    [prompt] = request.prompts
    if isinstance(prompt, Document):
        raise TypeError("a document is not rendered")
    with _explained():
        return await asyncio.to_thread(lexicon.rendered, prompt, *_context(request, prompt, lexicon))


def _context(
    request: GenerationRequest, prompt: Conversation, lexicon: Lexicon
) -> tuple[dict[str, object], tuple[Tool, ...]]:
    """What the template needs beside the messages: its variables and the tools."""
    variables = {**lexicon.format.variables(request.reasoning), **prompt.template_variables}
    return variables, request.tools  # also if none may be called, so that the prefix stays the cached one


@contextmanager
def _explained() -> Iterator[None]:
    """Turns the template's error into a 400."""
    try:
        yield
    except TemplateError as error:
        raise invalid("messages", str(error), "chat_template_error") from None


def jobs(
    request: GenerationRequest,
    model: ServedModel,
    n_tokens: int,
    prompt: tuple[int, ...],
    timeout_ms: int,
    grammar: str = "",
    thinking: ThinkingLimit | None = None,
) -> list[Job]:
    """One job per choice, each with its own seed. Raises a 400 `ApiError` if the prompt leaves no room."""
    if not prompt:
        raise invalid(request.prompt_field, f"'{request.prompt_field}': it must have at least one token.")
    room = _room(request, model, n_tokens, prompt)
    return [
        Job(
            request_id=f"req-{secrets.token_hex(16)}",
            model=model.name,
            prompt=prompt,
            sampling=msgspec.structs.replace(request.sampling, seed=choice_seed(request.sampling.seed, index)),
            max_tokens=room if request.max_tokens is None else min(room, max(request.max_tokens, 1)),
            speculation=request.speculation,
            top_logprobs=request.top_logprobs,
            cache_prompt=request.cache_prompt,
            timeout_ms=timeout_ms,
            grammar=grammar,
            thinking=thinking,
        )
        for index in range(request.choices)
    ]


def _room(request: GenerationRequest, model: ServedModel, n_tokens: int, prompt: tuple[int, ...]) -> int:
    biased = (*(token for token, _ in request.sampling.logit_bias), *request.sampling.banned)
    foreign = [token for token in biased if not 0 <= token < n_tokens]
    if foreign:
        raise invalid("logit_bias", f"'logit_bias': token {foreign[0]} is not one of this model's {n_tokens} tokens.")
    room = model.n_ctx - len(prompt)
    if room < 1:
        raise invalid(
            request.prompt_field,
            f"prompt is too long: {len(prompt)} tokens > {model.n_ctx - 1} maximum. This model's maximum context length"
            f" is {model.n_ctx} tokens, and the answer needs at least one of them.",
            "context_length_exceeded",
        )
    return room


async def _grammar(request: GenerationRequest, lexicon: Lexicon, format: Format, opened: bool) -> str:
    wanted = request.output is not None
    lark = await asyncio.to_thread(format.grammar, request.tools, request.tool_choice, output=wanted, opened=opened)
    return await lexicon.composer.compose(lark, request.output) if lark else ""
