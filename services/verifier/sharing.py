"""How running requests share the target's cores or device with the drafters there: whose turn it is. No I/O."""

from collections.abc import Sequence
from typing import Final

from services.verifier.drafters import Drafters
from services.verifier.generation import Generation
from services.verifier.planner import QUIET_ROUNDS
from services.verifier.speed import Pace
from services.verifier.turns import Mode, Turns, in_turns
from shared.wire.messages import Speculation

# Every so many rounds resting drafters try again for a few rounds. Their guesses are judged without rows, so this costs
# the verifier nothing but the cores that they use.
PROBE_EVERY: Final = 256
PROBE_ROUNDS: Final = 8
# On the target's own cores fewer rounds and guesses have to do, and of a drafter that does not pay one request in so
# many, because it would read each prompt in vain.
NEAR_PROBE_ROUNDS: Final = 3
PROBE_LEAD: Final = 2
PROBE_REQUESTS: Final = 8


class Sharing:
    def __init__(self, turns: Turns, drafters: Drafters, pace: Pace) -> None:
        self.turns = turns
        self._drafters = drafters
        self._pace = pace

    def look(self, running: Sequence[Generation]) -> None:
        """Decide how the target and the drafters on its cores use them in the next round."""
        before = self.turns.mode
        best = next(filter(None, map(self._best, running)), "")
        self.turns.look(self._drafters[best].partner(before) if best else None, len(running))
        if self.turns.mode is not before:
            for drafter in self._drafters:
                if drafter.contends:
                    drafter.changed(before, self.turns.mode)

    def turn(self, generation: Generation, running: Sequence[Generation]) -> str | None:
        """Which drafter's turn it is after a round, "" for none; None if drafters do not take turns.

        Nobody drafts while another request's prompt is read, because such a round does not wait.
        """
        if self.turns.mode is not Mode.TURNS:
            return None
        resting = generation.quiet_rounds >= QUIET_ROUNDS and generation.speculation is not Speculation.ALWAYS
        reading = any(one.uncomputed > 1 for one in running if one is not generation)
        return "" if resting or reading else self._best(generation)

    def takes_turns(self, name: str) -> bool:
        """Whether this drafter drafts in its turn alone."""
        return self.turns.mode is Mode.TURNS and name in self._drafters and self._drafters[name].contends

    def lead(self, generation: Generation, name: str) -> int:
        """How many guesses a drafter that takes turns makes now: those that are awaited, or a few to be judged by."""
        session = generation.sessions[name]
        probes = not session.heard or 0 < generation.quiet_rounds % PROBE_EVERY <= NEAR_PROBE_ROUNDS
        return session.want or (probes and name == self._best(generation)) * PROBE_LEAD

    def opens(self, generation: Generation, name: str) -> bool:
        """Whether to ask a drafter to draft for a request now, if it was not asked yet.

        One on the target's cores reads the prompt after the target, so that the first token is not late for it, and
        only if it pays, or to find out whether it does. One that could not pay even if it were always right is not
        tried.
        """
        if name not in self._drafters:
            return False
        if not self._drafters[name].contends:
            return True
        if not generation.rounds or generation.rounds - generation.sessions[name].opened_round > 1:
            return False
        drafter, cost = self._drafters[name], self.turns.whole.costs
        always = generation.speculation is Speculation.ALWAYS
        if not always and not self.turns.can_pay(drafter.at_best):
            return False
        pays = in_turns(drafter.partner(self.turns.mode), cost, 1) > 1.0 / cost(1)
        return drafter.promises(pays or always, PROBE_REQUESTS)

    def worth(self, name: str, requests: int) -> float:
        """The lowest probability of being needed at which a guess is worth a step now; 0: as the drafter was told."""
        if not self.takes_turns(name):
            return 0.0
        return self.turns.worth(self._drafters[name].step_ms, self._pace.rate, requests)

    def _best(self, generation: Generation) -> str:
        """The request's best drafter among those that compute where the target does; empty if there is none."""
        names = [name for name in generation.sessions if name in self._drafters and self._drafters[name].contends]
        if len(names) < 2:
            return next(iter(names), "")
        costs, mode = self.turns.whole.costs, self.turns.mode
        return max(names, key=lambda name: in_turns(self._drafters[name].partner(mode), costs, 1))
