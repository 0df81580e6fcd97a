"""Ends requests that wait too long after their model lost its last verifier, with an error that says why.

Without this they would wait until their own deadline. While Redis is away the gateway knows nothing of verifiers, so
this time does not count.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.gateway.errors import ago, deserted
from services.gateway.generation.generator import Generator
from services.gateway.models.directory import ModelDirectory
from shared.wire.broker import DISCONNECTED
from shared.wire.messages import Deserted

logger = structlog.get_logger()

_LOOK_S: Final = 1.0


class LostModels:
    """Watches the models that a gateway's requests wait for."""

    def __init__(
        self,
        directory: ModelDirectory,
        generator: Generator,
        grace_s: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` gives seconds from any start; by default it is the event loop's."""
        self._directory = directory
        self._generator = generator
        self._grace_s = grace_s
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._since: dict[str, float] = {}

    @property
    def deserted(self) -> tuple[Deserted, ...]:
        """The requests that wait for a verifier, for the gateway's card."""
        live, now = self._generator.live(), self._clock()
        return tuple(
            Deserted(
                model=model,
                requests=live[model],
                reason="its last verifier is gone; they end in"
                f" {ago(max(0.0, since + self._grace_s - now))} unless one comes",
            )
            for model, since in sorted(self._since.items())
            if live[model]
        )

    async def run(self) -> None:
        """Look every second for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """End what has waited for long enough."""
        waiting = self._generator.live()
        try:
            absent = await self._directory.absent(waiting) if waiting else set()
        except (RedisError, *DISCONNECTED):
            self._since.clear()
            return
        for model in self._since.keys() - absent:
            del self._since[model]
            if model in waiting:
                logger.info("model_served_again", model=model)
        now = self._clock()
        for model in absent:
            if model not in self._since:
                logger.warning("model_deserted", model=model, requests=waiting[model], grace_s=self._grace_s)
            if now - self._since.setdefault(model, now) >= self._grace_s:
                self._generator.desert(model, deserted(model, self._grace_s, self._directory.listing))
