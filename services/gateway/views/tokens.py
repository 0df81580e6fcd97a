"""Text to tokens and back, and conversations to the prompts that the model reads, in llama.cpp's and vLLM's shapes.

`content` asks as llama.cpp does, `prompt` and `messages` as vLLM does; answers carry the fields of both.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from services.gateway.dialects.chat.request import parse_chat
from services.gateway.errors import invalid
from services.gateway.generation.preparation import read, render
from services.gateway.http.answering import read_body
from services.gateway.http.bodies import Given, Reply, checked, parse_object, reply
from services.gateway.http.gateway import GATEWAY, Gateway
from services.gateway.models.served_model import Lexicon, ServedModel
from services.gateway.requests.bounds import MAX_TOKENS, check_length

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class Tokenize(Given):
    """The body of POST /tokenize; one of `content`, `prompt` and `messages`."""

    model: str | None = None
    content: str | Annotated[list[str | TokenId], Field(max_length=MAX_TOKENS)] | None = Field(
        None, description="Text, or a list of texts and token ids"
    )
    add_special: bool = Field(False, description="For 'content': begin with a BOS where the model wants one")
    parse_special: bool = Field(True, description="For 'content': read marks such as <|im_end|> as tokens")
    with_pieces: bool = Field(False, description="Tell every token's text (or bytes) beside its id")
    prompt: str | None = None
    add_special_tokens: bool = Field(True, description="For 'prompt': begin with a BOS where the model wants one")
    messages: list[Any] | None = Field(None, description="A conversation, with the fields of a chat request")
    return_token_strs: bool = False


class TokenPiece(Reply):
    """A token with its text, or its bytes where they are no text by themselves."""

    id: int
    piece: str | list[int]


class Tokens(Reply):
    """The answer of /tokenize."""

    tokens: list[int] | list[TokenPiece]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class Detokenize(Given):
    """The body of POST /detokenize."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS)]


class DetokenizedText(Reply):
    """The answer of /detokenize, under both names."""

    content: str
    prompt: str


class Prompt(Reply):
    """The answer of /apply-template."""

    prompt: str


async def tokenize(request: web.Request) -> web.Response:
    """Token ids. Raises a 400 `ApiError`."""
    gateway = request.app[GATEWAY]
    data = await read_body(request)
    body = checked(Tokenize, parse_object(data))
    if body.messages is not None:
        asked = parse_chat(data).generation()
        model, lexicon, [tokens] = await read(asked, gateway.directory, gateway.stores)
    else:
        model, lexicon = await _find(gateway, body.model)
        tokens = await asyncio.to_thread(_tokens, body, model, lexicon)
    wanted = tokens if body.with_pieces or body.return_token_strs else ()
    labels = await asyncio.to_thread(lambda: [lexicon.label(token) for token in wanted])
    return reply(
        Tokens(
            tokens=list(map(_piece, tokens, labels)) if body.with_pieces else list(tokens),
            count=len(tokens),
            max_model_len=model.n_ctx,
            token_strs=[label.decode(errors="replace") for label in labels] if body.return_token_strs else None,
        )
    )


async def detokenize(request: web.Request) -> web.Response:
    """Text, marks such as <|im_end|> included. Raises a 400 `ApiError`."""
    body = checked(Detokenize, parse_object(await read_body(request)))
    _, lexicon = await _find(request.app[GATEWAY], body.model)
    _check(body.tokens, lexicon, "tokens")
    data = await asyncio.to_thread(lambda: b"".join(map(lexicon.label, body.tokens)))
    text = data.decode(errors="replace")
    return reply(DetokenizedText(content=text, prompt=text))


async def apply_template(request: web.Request) -> web.Response:
    """The prompt of a chat request, as text. Raises a 400 `ApiError` with what the template says."""
    asked = parse_chat(await read_body(request)).generation()
    return reply(Prompt(prompt=await render(asked, request.app[GATEWAY].directory)))


async def _find(gateway: Gateway, name: str | None) -> tuple[ServedModel, Lexicon]:
    model = await gateway.directory.find(name)
    return model, await gateway.directory.lexicon(model.vocabulary)


def _tokens(body: Tokenize, model: ServedModel, lexicon: Lexicon) -> tuple[int, ...]:
    if body.content is None and body.prompt is None:
        raise invalid("content", "One of 'content', 'prompt' and 'messages' is required.", "missing_required_parameter")
    if body.content is None:
        assert body.prompt is not None
        check_length("prompt", model.n_ctx, lexicon.longest, len(body.prompt))
        tokens = lexicon.tokenize(body.prompt)
        return lexicon.with_bos(tokens) if body.add_special_tokens else tuple(tokens)
    tokens = []
    parts = [body.content] if isinstance(body.content, str) else body.content
    check_length("content", model.n_ctx, lexicon.longest, sum(len(part) for part in parts if isinstance(part, str)))
    for part in parts:
        tokens += lexicon.tokenize(part, special=body.parse_special) if isinstance(part, str) else [part]
    _check(tokens, lexicon, "content")
    return lexicon.with_bos(tokens) if body.add_special else tuple(tokens)


def _check(tokens: Sequence[int], lexicon: Lexicon, param: str) -> None:
    foreign = next((token for token in tokens if token >= lexicon.n_tokens), None)
    if foreign is not None:
        raise invalid(param, f"'{param}': {foreign} is not one of this model's {lexicon.n_tokens} tokens.")


def _piece(token: int, label: bytes) -> TokenPiece:
    try:
        return TokenPiece(id=token, piece=label.decode())
    except UnicodeDecodeError:
        return TokenPiece(id=token, piece=list(label))
