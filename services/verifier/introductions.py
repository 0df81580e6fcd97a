"""Meets drafters: reads their cards, compares their vocabulary with the target's, and refuses those that disagree."""

import asyncio
import os
import tempfile
from pathlib import Path

import structlog

from services.verifier.drafters import Drafters
from shared.llama import Model, Vocabulary
from shared.messages import DrafterCard
from shared.registry import Registry, VocabularyKeeper
from shared.rows import LlamaError
from shared.vocabulary import fingerprint, first_difference

logger = structlog.get_logger()


class Introductions:
    """Knows the target's vocabulary and, by fingerprint, the verdict on every other one it met."""

    def __init__(self, registry: Registry, vocabulary: Vocabulary, path: Path) -> None:
        self._registry = registry
        self._texts = vocabulary.texts()
        self._keeper = VocabularyKeeper(registry, path)
        self.fingerprint = fingerprint(self._texts)
        self._verdicts: dict[str, str] = {self.fingerprint: "", "": ""}  # empty: welcome

    @property
    def vocabulary(self) -> str:
        """Where the target's vocabulary lies in Redis."""
        return self._keeper.digest

    async def publish(self) -> None:
        """Keep the target's vocabulary in Redis, for gateways and drafters that have no copy of the model."""
        await self._keeper.keep()

    async def meet(self, drafters: Drafters) -> tuple[set[str], set[str]]:
        """Bring `drafters` up to date with the registry; returns the ids that joined and those that left."""
        cards = [card for card in await self._registry.list() if isinstance(card, DrafterCard)]
        welcome = []
        drafters.refused = {}
        for card in cards:
            reason = await self._verdict(card)
            if reason is None:
                continue  # its vocabulary is not in Redis yet; ask again at the next look
            if reason:
                drafters.refused[card.id] = reason
            else:
                welcome.append(card)
        return drafters.update(welcome)

    async def _verdict(self, card: DrafterCard) -> str | None:
        if card.fingerprint not in self._verdicts:
            try:
                gguf = await self._registry.fetch_vocabulary(card.vocabulary)
            except ValueError as error:
                return str(error)
            if gguf is None:
                return None
            reason = await asyncio.to_thread(self._compare, gguf)
            self._verdicts[card.fingerprint] = reason
            if reason:
                logger.warning("drafter_refused", drafter=card.id, model=card.model, reason=reason)
        return self._verdicts[card.fingerprint]

    def _compare(self, gguf: bytes) -> str:
        """Why this vocabulary cannot draft for ours; empty if it can."""
        handle, name = tempfile.mkstemp(suffix=".gguf")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(gguf)
            model = Model(name, vocab_only=True)
            texts = model.vocabulary.texts()
            model.close()
        except LlamaError:
            return "its vocabulary cannot be read"
        finally:
            os.unlink(name)
        token = first_difference(self._texts, texts)
        if token is None:
            return ""
        return (
            f"its vocabulary differs from the target's: token {token} is {texts[token]!r}, not {self._texts[token]!r}"
        )
