"""Whom the verifier listens to, and the proposals that wait for its next plan."""

from collections.abc import Callable
from typing import Final

import structlog

from services.verifier.drafters import Drafters
from services.verifier.introductions import Introductions
from shared.wire.drafts import Outboxes, Sent
from shared.wire.messages import Proposal

logger = structlog.get_logger()

MAX_WAITING: Final = 2048  # proposals kept while a round runs; the oldest, which are worth least, are dropped


class Listener:
    """Proposals from the drafters that are neither refused nor gone. `run` must run for any to arrive."""

    def __init__(
        self,
        outboxes: Outboxes,
        drafters: Drafters,
        introductions: Introductions,
        stir: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Calls `stir` at each arrival, and whenever drafters joined or left."""
        self._outboxes = outboxes
        self._drafters = drafters
        self._introductions = introductions
        self._stir = stir
        self._clock = clock
        self._waiting: list[tuple[float, list[Proposal]]] = []  # with the time of arrival, ms
        self.changed = False  # whether drafters joined or left since `see`

    async def run(self) -> None:
        """Receive for ever."""
        await self._outboxes.run(self._receive)

    def take(self) -> list[tuple[float, list[Proposal]]]:
        """What came since the last call, with the times of arrival in ms of the clock."""
        taken, self._waiting = self._waiting, []
        return taken

    def see(self) -> None:
        """The caller knows of every drafter that joined or left until now."""
        self.changed = False

    async def look(self) -> None:
        """Read the cards of all drafters, listen to those that joined, and renew what is read of the others."""
        joined, gone = await self._introductions.meet(self._drafters)
        self._follow()
        await self._outboxes.tidy()
        await self._outboxes.clear(gone | self._introductions.floods)  # these may go on sending
        if joined or gone:
            logger.info("drafters_changed", joined=sorted(joined), gone=sorted(gone))
            self.changed = True
            self._stir()

    def _follow(self) -> None:
        known = (drafter.card.id for drafter in self._drafters)
        self._outboxes.follow([name for name in known if not self._introductions.refuses(name)])

    def _receive(self, sent: Sent) -> None:
        if sent.drafter in self._drafters and not self._drafters[sent.drafter].sent(sent.size):
            self._introductions.flooded(sent.drafter)
            self._follow()
        elif sent.proposals:
            self._waiting.append((self._clock() * 1000, sent.proposals))
            while sum(len(batch) for _, batch in self._waiting) > MAX_WAITING:
                self._waiting.pop(0)
            self._stir()
