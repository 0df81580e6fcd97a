"""Meets drafters: reads their cards, compares their vocabulary with the target's, and refuses those that disagree."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from services.verifier.drafters import Drafters
from shared.fleet.registry import Registry, target_keeper
from shared.model.llama.vocabulary import Vocabulary
from shared.model.vocabulary import fingerprint, first_difference
from shared.wire.messages import DrafterCard

logger = structlog.get_logger()


class Introductions:
    """Knows the target's vocabulary and, by fingerprint, the verdict on every other one it met."""

    def __init__(self, registry: Registry, vocabulary: Vocabulary, path: Path) -> None:
        self._registry = registry
        self._texts = vocabulary.texts()
        self._keeper = target_keeper(registry, path)
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
        self._forget({card.fingerprint for card in cards})
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

    def _forget(self, present: set[str]) -> None:
        """A fingerprint is only a drafter's word: one that made up new ones must not fill our memory."""
        for old in self._verdicts.keys() - present - {self.fingerprint, ""}:
            del self._verdicts[old]

    async def _verdict(self, card: DrafterCard) -> str | None:
        if card.fingerprint not in self._verdicts:
            try:
                texts = await self._registry.fetch_texts(card.vocabulary)
            except ValueError as error:
                return str(error)
            if texts is None:
                return None
            reason = await asyncio.to_thread(self._compare, texts)
            self._verdicts[card.fingerprint] = reason
            if reason:
                logger.warning("drafter_refused", drafter=card.id, model=card.model, reason=reason)
        return self._verdicts[card.fingerprint]

    def _compare(self, texts: Sequence[bytes]) -> str:
        """Why this vocabulary cannot draft for ours; empty if it can."""
        token = first_difference(self._texts, texts)
        if token is None:
            return ""
        theirs, ours = texts[token][:_SHOWN], self._texts[token][:_SHOWN]
        return f"its vocabulary differs from the target's: token {token} is {theirs!r}, not {ours!r}"


_SHOWN: Final = 64  # bytes of a token in a message
