"""Reads the cards of drafters, compares their vocabularies with the target's, and refuses those that differ."""

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
    """The target's vocabulary, and by fingerprint the verdict on every other vocabulary that was compared with it."""

    def __init__(self, registry: Registry, vocabulary: Vocabulary, path: Path, chat_template: str = "") -> None:
        self._registry = registry
        self._texts = vocabulary.texts()
        self.keeper = target_keeper(
            registry, path, chat_template
        )  # of the target's vocabulary, for gateways without the model
        self.fingerprint = fingerprint(self._texts)
        self._verdicts: dict[str, str] = {self.fingerprint: "", "": ""}  # fingerprint to reason; empty: accepted

    async def meet(self, drafters: Drafters) -> tuple[set[str], set[str]]:
        """Bring `drafters` up to date with the registry; returns the ids that joined and those that left."""
        cards = [card for card in await self._registry.list() if isinstance(card, DrafterCard)]
        self._forget({card.fingerprint for card in cards})
        reasons = {card.id: await self._verdict(card) for card in cards}
        # A drafter whose reason is None has not stored its vocabulary in Redis yet: the next look asks again.
        accepted = [card for card in cards if reasons[card.id] == ""]
        return drafters.update(accepted, {name: reason for name, reason in reasons.items() if reason})

    def _forget(self, present: set[str]) -> None:
        """Drop verdicts on vocabularies that no card names, so that invented fingerprints do not fill the memory."""
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
        """Why a drafter with this vocabulary cannot draft for the target; empty if it can."""
        token = first_difference(self._texts, texts)
        if token is None:
            return ""
        theirs, ours = texts[token][:_SHOWN], self._texts[token][:_SHOWN]
        return f"its vocabulary differs from the target's: token {token} is {theirs!r}, not {ours!r}"


_SHOWN: Final = 64  # bytes of a token in a message
