"""Measures the cost of rows again while the target has nothing to do, if the machine was busy at the start."""

import math
from collections.abc import Callable
from typing import Final

import structlog

from services.verifier.calibrate import Calibration
from shared.law.speedup import RowCosts
from shared.machine.load import CpuTime
from shared.model import row_costs
from shared.model.sequences import Sequences
from shared.model.target import Target

logger = structlog.get_logger()

FIRST_S: Final = 10.0  # of rest before the first attempt: a client that comes back finds the target free
LONGEST_S: Final = 600.0  # the time between attempts doubles up to this


class Remeasuring:
    """Attempts to measure on a machine at rest; after the first that succeeds there are no more."""

    def __init__(
        self,
        target: Target,
        sequences: Sequences,
        costs: RowCosts,
        calibration: Calibration,
        cpu: Callable[[], CpuTime | None] = lambda: None,
    ) -> None:
        """`cpu` reads what programs have used of the processor."""
        self._target = target
        self._sequences = sequences
        self._costs = costs
        self._calibration = calibration
        self._cpu = cpu
        self.after_s = FIRST_S if calibration.is_noisy else math.inf  # rest before the next attempt

    @property
    def due(self) -> bool:
        """Whether the costs come from a busy machine and will be measured again."""
        return self.after_s < math.inf

    def attempt(self, stop: Callable[[], bool], clock: Callable[[], float]) -> None:
        """Measure, unless `stop` becomes true: then it ends after the decode that runs. No request may run.

        Call it in the target's thread. The least recently used sequence loses its tokens.
        """
        slot = self._sequences.acquire((), share=False)
        try:
            times = row_costs.time_rows(
                self._target,
                self._calibration.tokens,
                clock=clock,
                stop=stop,
                sequence=slot.id,
                cpu=self._cpu,
            )
        finally:
            self._sequences.release(slot)
        if stop():
            return
        if times.is_noisy:
            self.after_s = min(2 * self.after_s, LONGEST_S)
            return
        self.after_s = math.inf
        self._costs.renew(times.costs)
        self._calibration.renew(times.costs)
        logger.info("calibration_renewed", row_ms={rows: round(ms, 2) for rows, ms in times.costs.items()})
