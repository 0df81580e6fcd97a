"""Which models are served now and how to speak to them: never more than `fresh_s` behind the registry.

A vocabulary is fetched from Redis and loaded once per digest, off the event loop.
"""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import structlog

from services.gateway.capabilities import probe
from services.gateway.errors import ApiError, unavailable
from services.gateway.formats.detect import detect
from services.gateway.grammars import Composer
from services.gateway.rendering import Renderer
from services.gateway.requests import Conversation, Tool
from services.gateway.template import ChatTemplate, TemplateError
from services.gateway.turns import Turn
from shared.grammar import Grammars
from shared.llama import Model
from shared.messages import Card, Thinking, VerifierCard
from shared.registry import Registry
from shared.rows import LlamaError

logger = structlog.get_logger()

_TAIL: Final = 16  # tokens of a prompt's end that may hold the beginning of the thinking
FRESH_S: Final = 1.0  # a verifier that joins or drains is noticed within this
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that at least one verifier serves and does not drain."""

    name: str
    fingerprint: str
    vocabulary: str  # where its vocabulary and chat template lie
    n_ctx: int  # the smallest of its verifiers: any of them may claim the request
    n_cells: int  # tokens that all its verifiers hold at once
    created: int
    exactness: str

    @property
    def system_fingerprint(self) -> str:
        """How exact answers are, and of which vocabulary."""
        return f"{self.exactness}-{self.fingerprint}"


class Lexicon:
    """A loaded vocabulary with its chat template: messages to token ids, token ids to bytes."""

    def __init__(self, model: Model) -> None:
        self._model = model  # keeps what `vocabulary` points to
        self._vocabulary = model.vocabulary
        self._hidden = frozenset(self._vocabulary.eog)
        self.n_tokens = self._vocabulary.n_tokens
        self.composer = Composer(Grammars(self._vocabulary))
        self.template = source = self._vocabulary.chat_template()
        self.bos = self._special(self._vocabulary.bos)
        self.eos = self._special(model.metadata("tokenizer.ggml.eos_token_id"))
        template = None if source is None else ChatTemplate(source, bos=self.bos, eos=self.eos)
        self.format = detect(source, self._control, template is not None and probe(template).tools)
        # Kept as they are met: asking llama.cpp takes longer than all else that a token takes here.
        self._pieces = {token: mark.encode() for mark in self.format.marks for token in self._single(mark)}
        self._renderer = (
            None
            if template is None
            else Renderer(template, self.format.call_id, self.format.instructions, native=self.format.takes_tools)
        )

    def prompt(
        self,
        conversation: Conversation,
        variables: Mapping[str, object],
        tools: Sequence[Tool] = (),
        turns: Mapping[str, Turn] | None = None,
        check: Callable[[int], None] = lambda characters: None,
    ) -> tuple[int, ...]:
        """The rendered conversation as token ids, with exactly one BOS where the vocabulary wants one.

        Raises `TemplateError`, and what `check` raises of the rendered text's length. May take long for long prompts:
        call it off the event loop.
        """
        segments = self._rendering().render(conversation, variables, tools, turns or {})
        check(sum(len(segment) for segment in segments if isinstance(segment, str)))
        tokens: list[int] = []
        for segment in segments:
            tokens += segment if isinstance(segment, tuple) else self._vocabulary.tokenize(segment)
        return self.with_bos(tokens)

    def rendered(self, conversation: Conversation, variables: Mapping[str, object], tools: Sequence[Tool] = ()) -> str:
        """The conversation as text, calls as the template writes them. Raises `TemplateError`."""
        return "".join(map(str, self._rendering().render(conversation, variables, tools, {})))

    def _rendering(self) -> Renderer:
        if self._renderer is None:
            raise TemplateError("this model has no chat template, so it cannot take messages")
        return self._renderer

    def document(self, content: str | tuple[int, ...]) -> tuple[int, ...]:
        """Text as token ids, with exactly one BOS where the vocabulary wants one; ids as they are.

        May take long for long texts: call it off the event loop.
        """
        return self.with_bos(self._vocabulary.tokenize(content)) if isinstance(content, str) else content

    def with_bos(self, tokens: list[int]) -> tuple[int, ...]:
        """The tokens with exactly one BOS where the vocabulary wants one."""
        bos = self._vocabulary.bos
        # Not `add_special`: that would also add an EOS for vocabularies that ask for one.
        if self._vocabulary.add_bos and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        return tuple(tokens)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of the text as it is, without a BOS; `special`: marks such as `<|im_end|>` are tokens.

        May take long for long texts: call it off the event loop.
        """
        return self._vocabulary.tokenize(text, parse_special=special)

    @cached_property
    def longest(self) -> int:
        """The most bytes that one token stands for."""
        return max(map(len, map(self.label, range(self.n_tokens))), default=1)

    def metadata(self, key: str) -> str | None:
        """What the model file says under this GGUF key."""
        return self._model.metadata(key)

    def piece(self, token: int) -> bytes:
        """The bytes of a token as they belong to an answer: nothing for control and end-of-generation tokens, except
        for those that mark thinking and tool calls."""
        piece = self._pieces.get(token)
        if piece is None:
            if token in self._hidden or token >= self.n_tokens:
                return b""
            piece = self._pieces[token] = self._vocabulary.piece(token)
        return piece

    def label(self, token: int) -> bytes:
        """The bytes that name a token, also a control token's."""
        # An id beyond the vocabulary would end the process inside llama.cpp, and logs come from outside.
        return self._vocabulary.piece(token, special=True) if token < self.n_tokens else b""

    def opens(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt ends inside the model's thinking: it does not end it after its last beginning."""
        span = self.format.span
        if span is None:
            return False
        tail = b"".join(map(self.label, prompt[-_TAIL:])).decode(errors="replace").rstrip()
        return tail.endswith(span.start.rstrip())

    def thinking(self, budget: int | None, opened: bool) -> Thinking | None:
        """How the verifier keeps the budget; None without a budget or where the model does not think."""
        span = self.format.span
        if budget is None or span is None:
            return None
        start, end, close = (tuple(self._vocabulary.tokenize(text)) for text in (span.start, span.end, span.close))
        return Thinking(budget=budget, opened=opened, start=start, end=end, close=close)

    def _single(self, mark: str) -> list[int]:
        """The token that is this mark and nothing else, if there is one."""
        tokens = self._vocabulary.tokenize(mark)
        return tokens if len(tokens) == 1 else []

    def _control(self, text: str) -> int | None:
        """The token that is this mark, if it stands for no text and can only be named."""
        return next((token for token in self._single(text) if token in self._vocabulary.special), None)

    def _special(self, token: int | str | None) -> str:
        number = -1 if token is None else int(token)
        return self.label(number).decode(errors="replace") if 0 <= number < self.n_tokens else ""


class ModelDirectory:
    """A cached view of the registry's cards and the vocabularies they name."""

    def __init__(self, registry: Registry, fresh_s: float = FRESH_S) -> None:
        self._registry = registry
        self._fresh_s = fresh_s
        self._refreshing = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._expires = float("-inf")
        self._lexicons: dict[str, Lexicon] = {}
        self.last: list[Card] = []

    async def cards(self) -> list[Card]:
        """Every living card. Raises redis-py's errors; `last` keeps what was seen before."""
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if now >= self._expires:
                self.last = await self._registry.list()
                self._expires = now + self._fresh_s
        return self.last

    async def served(self) -> list[ServedModel]:
        """The models that new requests may ask for, by name."""
        by_name: defaultdict[str, list[VerifierCard]] = defaultdict(list)
        for card in await self.cards():
            if isinstance(card, VerifierCard) and not card.draining:
                by_name[card.model].append(card)
        return [_serve(by_name[name]) for name in sorted(by_name)]

    async def find(self, name: str | None) -> ServedModel:
        """The model of that name; None or "default" mean the only one, and Ollama's ":latest" means nothing.

        Raises a 404 or 503 `ApiError`.
        """
        models = await self.served()
        for model in models:
            if name in (model.name, f"{model.name}:latest"):
                return model
        if not models:
            raise unavailable("No verifier is serving a model now; try again shortly.", "no_verifier")
        if name in (None, DEFAULT) and len(models) == 1:
            return models[0]
        known = ", ".join(model.name for model in models)
        asked = f"The model '{(name or DEFAULT)[:200]}' does not exist"
        raise ApiError(404, f"{asked}; served: {known}.", code="model_not_found", param="model")

    async def lexicon(self, vocabulary: str) -> Lexicon:
        """The vocabulary stored there. Raises a 503 `ApiError` while nobody has published it."""
        async with self._loading:
            lexicon = self._lexicons.get(vocabulary)
            if lexicon is None:
                try:
                    data = await self._registry.fetch_vocabulary(vocabulary)
                except ValueError as error:
                    logger.error("vocabulary_unusable", error=str(error))
                    raise unavailable("The model's vocabulary in Redis is damaged; try again shortly.") from error
                if data is None:
                    raise unavailable("The model's vocabulary is not published yet; try again shortly.")
                lexicon = self._lexicons[vocabulary] = await asyncio.to_thread(_load, data)
                logger.info("vocabulary_loaded", vocabulary=vocabulary, n_tokens=lexicon.n_tokens)
        return lexicon


def _serve(cards: Sequence[VerifierCard]) -> ServedModel:
    oldest = min(cards, key=lambda card: (card.created, card.id))
    # Token ids mean something else to another vocabulary; the oldest verifier's is the one that requests are made for.
    peers = [card for card in cards if card.vocabulary == oldest.vocabulary]
    return ServedModel(
        name=oldest.model,
        fingerprint=oldest.fingerprint,
        vocabulary=oldest.vocabulary,
        n_ctx=min(card.n_ctx for card in peers),
        n_cells=sum(card.n_ctx * card.slots for card in peers),
        created=oldest.created,
        exactness=peers[0].exactness if len({card.exactness for card in peers}) == 1 else "law",
    )


def _load(data: bytes) -> Lexicon:
    with tempfile.TemporaryDirectory(prefix="draftmesh-") as folder:
        path = Path(folder) / "vocabulary.gguf"
        path.write_bytes(data)
        try:
            return Lexicon(Model(path, vocab_only=True))
        except (LlamaError, TemplateError) as error:
            logger.error("vocabulary_unusable", error=str(error))
            raise ApiError(500, "The model's vocabulary cannot be loaded.", kind="server_error") from error
