"""Which models are served now, and under which names: at most `fresh_s` behind the registry.

It fetches a vocabulary from Redis and loads it once per digest, off the event loop.
"""

import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from services.gateway.errors import SERVER, ApiError, not_served, unavailable, unknown_model
from services.gateway.models.served_model import Lexicon, ServedModel
from shared.fleet.model_names import DEFAULT, LATEST, Names, resolve
from shared.fleet.registry import LastServed, Registry
from shared.model.llama.model import Model
from shared.model.rows import LlamaError
from shared.wire.messages import MAX_NAME, Card, VerifierCard

logger = structlog.get_logger()

FRESH_S: Final = 1.0  # a verifier that joins or drains is noticed within this


class ModelDirectory:
    """A cached view of the registry's cards and the vocabularies they name."""

    def __init__(self, registry: Registry, fresh_s: float = FRESH_S) -> None:
        self._registry = registry
        self._fresh_s = fresh_s
        self._refreshing = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._read_at = float("-inf")
        self._lexicons: dict[str, Lexicon | None] = {}  # by digest; None: cannot be loaded
        self.last: list[Card] = []
        self._names = Names()

    async def cards(self, since: float = float("-inf")) -> list[Card]:
        """Every living card, as it was at most `fresh_s` ago and not before `since` on the loop's clock.

        Simultaneous callers share one read. Raises redis-py's errors; `last` keeps the cards seen before.
        """
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if self._read_at <= max(since, now - self._fresh_s):
                self.last = await self._registry.list()
                self._read_at = now
                self._learn_names()
        return self.last

    async def served(self, since: float = float("-inf")) -> list[ServedModel]:
        """The models that new requests may ask for: the default one first, the others by name. `since`: of `cards`."""
        by_name: defaultdict[str, list[VerifierCard]] = defaultdict(list)
        for card in serving(await self.cards(since)):
            by_name[card.model].append(card)
        return [_serve(by_name[name], self._names.of(name)) for name in self._names.models]

    async def find(self, name: str | None, *, or_default: bool = False) -> ServedModel:
        """The model of that name or alias. None and "default" mean the model with the alias "default", else the only
        one; Ollama's ":latest" means nothing. With `or_default` an unknown name means the default model too.

        Raises a 404 or 503 `ApiError`.
        """
        asked = asyncio.get_running_loop().time()
        for since in (float("-inf"), asked):  # a model that a client asks for may have come just now
            models = {model.name: model for model in await self.served(since)}
            found = self._names.find(name) or (self._names.default if or_default else None)
            if found is not None:
                return models[found]
        last = await self._last_served(name)
        if last is not None:
            raise not_served(name or DEFAULT, last, self.listing)
        if not models:
            raise unavailable("No verifier is serving a model now; try again shortly.", "no_verifier")
        raise unknown_model(name or DEFAULT, self._names.nearest(name or DEFAULT), self.listing)

    async def _last_served(self, name: str | None) -> LastServed | None:
        if not name or len(name) > MAX_NAME:
            return None
        return await self._registry.last_served(name) or await self._registry.last_served(name.removesuffix(LATEST))

    @property
    def listing(self) -> str:
        """All names, for people, as last seen."""
        return self._names.listing()

    async def absent(self, names: Iterable[str]) -> set[str]:
        """The models among these that no living verifier serves, not even one that drains."""
        living = {card.model for card in await self.cards() if isinstance(card, VerifierCard)}
        return set(names) - living

    def _learn_names(self) -> None:
        names = resolve(serving(self.last))
        for conflict in names.conflicts:
            if conflict not in self._names.conflicts:
                logger.warning("alias_conflict", alias=conflict.alias, model=conflict.model, means=conflict.winner)
        self._names = names

    async def lexicon(self, vocabulary: str) -> Lexicon:
        """The vocabulary stored there.

        Raises a 503 `ApiError` while no verifier has published it, and a 500 one if llama.cpp cannot load it, which is
        not tried again.
        """
        async with self._loading:
            if vocabulary not in self._lexicons:
                try:
                    data = await self._registry.fetch_vocabulary(vocabulary)
                except ValueError as error:
                    logger.error("vocabulary_unusable", error=str(error))
                    raise unavailable("The model's vocabulary in Redis is damaged; try again shortly.") from error
                if data is None:
                    raise unavailable("The model's vocabulary is not published yet; try again shortly.")
                self._lexicons[vocabulary] = await asyncio.to_thread(_load, data, vocabulary)
        lexicon = self._lexicons[vocabulary]
        if lexicon is None:
            raise ApiError(500, "The model's vocabulary cannot be loaded.", kind=SERVER)
        return lexicon


def serving(cards: Iterable[Card]) -> list[VerifierCard]:
    """The verifiers that take new requests."""
    return [card for card in cards if isinstance(card, VerifierCard) and not card.draining]


def _serve(cards: Sequence[VerifierCard], aliases: tuple[str, ...]) -> ServedModel:
    oldest = min(cards, key=lambda card: (card.created, card.id))
    # Token ids of another vocabulary mean other tokens; requests use the oldest verifier's vocabulary.
    peers = [card for card in cards if card.vocabulary == oldest.vocabulary]
    return ServedModel(
        name=oldest.model,
        fingerprint=oldest.fingerprint,
        vocabulary=oldest.vocabulary,
        n_ctx=min(card.n_ctx for card in peers),
        n_cells=sum(card.n_ctx * card.slots for card in peers),
        created=oldest.created,
        exactness=peers[0].exactness if len({card.exactness for card in peers}) == 1 else "law",
        aliases=aliases,
    )


def _load(data: bytes, name: str) -> Lexicon | None:
    """The vocabulary, None if llama.cpp cannot load it. Raises a 503 `ApiError` without room for its file."""
    try:
        with _file(data) as path:
            lexicon = Lexicon(Model(path, vocab_only=True))
    except LlamaError as error:
        logger.error("vocabulary_unusable", error=str(error))
        return None
    except OSError as error:  # from writing the file, because llama.cpp has errors of its own
        logger.error("vocabulary_unwritable", error=str(error))
        raise unavailable("The gateway finds no room for the model's vocabulary; try again later.") from error
    logger.info("vocabulary_loaded", vocabulary=name, n_tokens=lexicon.n_tokens)
    if lexicon.chat_fault:
        logger.warning("chat_template_unusable", vocabulary=name, reason=lexicon.chat_fault)
    return lexicon


@contextmanager
def _file(data: bytes) -> Iterator[Path]:
    """A file that holds `data`, because llama.cpp reads nothing else: in memory where the system can, so that a full
    disk does not matter. Raises `OSError`."""
    if sys.platform == "linux":
        with open(os.memfd_create("vocabulary"), "wb") as file:
            file.write(data)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
    else:
        with tempfile.TemporaryDirectory(prefix="draftmesh-") as folder:
            path = Path(folder) / "vocabulary.gguf"
            path.write_bytes(data)
            yield path
