"""Reads drafters' cards. Refuses drafters that have another vocabulary than the target, that flood or that hoard."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from services.verifier.drafters import Drafters
from shared.fleet.registry import Registry, target_keeper
from shared.model.llama.vocabulary import Vocabulary
from shared.model.vocabulary import compare, fingerprint
from shared.wire import keys
from shared.wire.messages import DrafterCard

logger = structlog.get_logger()

FLOOD_S: Final = 60.0  # how long a drafter that sent too much stays refused
_PER_MACHINE: Final = 8  # drafters with one machine's user, so that it cannot crowd out the others
_FLOODED: Final = "it sends more than it was asked for"
HOARDED: Final = "it fills Redis with its keys"
_CROWD: Final = f"more than {_PER_MACHINE} drafters of one machine"


class Introductions:
    """The target's vocabulary, and by fingerprint the verdict on every other vocabulary that was compared with it."""

    def __init__(
        self,
        registry: Registry,
        vocabulary: Vocabulary,
        path: Path,
        clock: Callable[[], float],
        chat_template: str = "",
        hoards: Callable[[str], bool] = lambda drafter: False,
    ) -> None:
        """`clock` is monotonic, in seconds. `hoards` tells whether a drafter filled Redis lately."""
        self._registry = registry
        self._clock = clock
        self._hoards = hoards
        self._floods: dict[str, float] = {}  # drafter to the time until which it is refused
        self._texts = vocabulary.texts()
        # Of the target's vocabulary, for gateways without the model.
        self.keeper = target_keeper(registry, path, chat_template)
        self.fingerprint = fingerprint(self._texts)
        self._verdicts: dict[str, str] = {self.fingerprint: "", "": ""}  # fingerprint to reason; empty: accepted

    async def meet(self, drafters: Drafters) -> tuple[set[str], set[str]]:
        """Bring `drafters` up to date with the registry; returns the ids that joined and those that left."""
        cards = [card for card in await self._registry.list() if isinstance(card, DrafterCard)]
        self._forget({card.fingerprint for card in cards})
        self._floods = {name: until for name, until in self._floods.items() if until > self._clock()}
        machines = Counter[str]()
        reasons = {card.id: self._manners(card, machines) or await self._verdict(card) for card in cards}
        # A drafter whose reason is None has not stored its vocabulary in Redis yet: the next look asks again.
        accepted = [card for card in cards if reasons[card.id] == ""]
        return drafters.update(accepted, {name: reason for name, reason in reasons.items() if reason})

    def flooded(self, drafter: str) -> None:
        """Refuse this drafter for a while, because it sent more than it was asked for."""
        logger.warning("drafter_refused", drafter=drafter, reason=_FLOODED)
        self._floods[drafter] = self._clock() + FLOOD_S

    @property
    def floods(self) -> set[str]:
        """The drafters that sent too much lately."""
        return set(self._floods)

    def refuses(self, drafter: str) -> bool:
        """Whether this drafter sent or kept too much lately."""
        return self._hoards(drafter) or self._floods.get(drafter, -math.inf) > self._clock()

    def _manners(self, card: DrafterCard, machines: "Counter[str]") -> str:
        """Why this drafter is refused whatever its vocabulary; empty if it is not."""
        machine, marked, _ = card.id.partition(keys.OF_MACHINE)
        machines[machine] += 1
        if self._hoards(card.id):
            return HOARDED
        if self.refuses(card.id):
            return _FLOODED
        return _CROWD if marked and machines[machine] > _PER_MACHINE else ""

    def _forget(self, present: set[str]) -> None:
        """Drop verdicts on vocabularies that no card names, so that invented fingerprints do not fill the memory."""
        for old in self._verdicts.keys() - present - {self.fingerprint, ""}:
            del self._verdicts[old]

    async def _verdict(self, card: DrafterCard) -> str | None:
        if card.fingerprint not in self._verdicts:
            try:
                texts = await self._registry.fetch_texts(card.id, card.vocabulary)
            except ValueError as error:
                return str(error)
            if texts is None:
                return None
            found = await asyncio.to_thread(compare, self._texts, texts)
            reason = "" if found.can_draft else f"its vocabulary differs from the target's: {found}"
            self._verdicts[card.fingerprint] = reason
            if reason:
                logger.warning("drafter_refused", drafter=card.id, model=card.model, reason=reason)
            elif found.different:
                logger.info("drafter_vocabulary", drafter=card.id, model=card.model, comparison=str(found))
        return self._verdicts[card.fingerprint]
