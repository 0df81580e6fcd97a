"""Which drafters work for which request: spread evenly, no two that say the same, none that adds nothing. No I/O."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from services.verifier.drafters import Drafter, Drafters
from services.verifier.generation import DrafterSession, Generation
from shared.wire.messages import Speculation

# Two model drafters per request: their union in the trie already catches most of what either knows, and a third
# would rather help another request.
PER_REQUEST: Final = {"lookup": 1, "model": 2}
# Rounds for which a drafter that added nothing is not tried again; its trial is then about a fifth of the time.
BARRED_ROUNDS: Final = 256
# Rounds between two moves of a request: its new drafter must read the whole context first.
STAY_ROUNDS: Final = 64
# Of two equal drafters one whose steps take this many times as long is no relief, however little it has to do.
_MUCH_SLOWER: Final = 2.0

Pairing = tuple[Generation, str]  # a request and the id of a drafter


class Assignment:
    """Opens and closes the sessions of requests. `due` says that something happened which calls for `reassign`."""

    def __init__(self, drafters: Drafters) -> None:
        self.due = False
        self._drafters = drafters

    def enlist(self, generation: Generation, now_ms: float) -> list[str]:
        """Give a request the drafters that it lacks and forget those that are gone; returns whom to tell."""
        self._forget(generation)
        chosen = self._choose(generation) if _willing(generation) else []
        for name in chosen:
            self._start(generation, name, now_ms)
        return chosen

    def reassign(self, running: Sequence[Generation], now_ms: float) -> tuple[list[Pairing], list[Pairing]]:
        """Assign anew: release, even out, fill up. Returns which sessions to open and which to close."""
        self.due = False
        for generation in running:
            self._forget(generation)
        willing = [generation for generation in running if _willing(generation)]
        closed = list(self._release(willing))
        opened: list[Pairing] = []
        while (move := self._move(willing)) is not None:
            generation, source, target = move
            self._stop(generation, source.card.id)
            self._start(generation, target.card.id, now_ms)
            generation.stays_until = generation.rounds + STAY_ROUNDS
            closed.append((generation, source.card.id))
            opened.append((generation, target.card.id))
        opened += [(generation, name) for generation in willing for name in self.enlist(generation, now_ms)]
        return opened, closed

    def round_ended(self, generation: Generation) -> None:
        """A request finished a round: it may have a drafter to release, or may try one again."""
        if generation.rounds in generation.barred.values() or self._redundant(generation) is not None:
            self.due = True

    def request_ended(self, generation: Generation) -> None:
        """A request ended; its drafters are free for others."""
        for name in generation.sessions:
            if name in self._drafters:
                self._drafters[name].requests -= 1
        self.due = True

    # ------------------------------------------------------------ sessions

    def _start(self, generation: Generation, name: str, now_ms: float) -> None:
        self._drafters[name].requests += 1
        # It reads the prompt first; nobody waits for it before its first proposal.
        generation.sessions[name] = DrafterSession(name, expected_ms=now_ms)
        generation.heard, generation.quiet_rounds = False, 0
        generation.contributions.restart()

    def _stop(self, generation: Generation, name: str) -> None:
        self._drafters[name].requests -= 1
        del generation.sessions[name]
        generation.contributions.restart()

    def _forget(self, generation: Generation) -> None:
        """Drop the sessions of drafters that are gone."""
        gone = [name for name in generation.sessions if name not in self._drafters]
        for name in gone:
            del generation.sessions[name]
        if gone:
            generation.contributions.restart()
            if not self._models(generation):
                generation.barred.clear()  # it added nothing beside the one that is gone

    # ------------------------------------------------------------ rules

    def _choose(self, generation: Generation) -> list[str]:
        """What a request should gain: the least loaded that are no equals of those it has or has released."""
        present = [self._drafters[name] for name in generation.sessions]
        taken = {drafter.kin for drafter in present}
        taken |= {kin for kin, until in generation.barred.items() if generation.rounds < until}
        room = Counter(PER_REQUEST)
        room.subtract(drafter.card.kind for drafter in present)
        chosen = []
        for drafter in sorted(self._drafters, key=_burden):
            if room[drafter.card.kind] > 0 and drafter.kin not in taken and drafter.has_room:
                room[drafter.card.kind] -= 1
                taken.add(drafter.kin)
                chosen.append(drafter.card.id)
        return chosen

    def _release(self, willing: Sequence[Generation]) -> Iterator[Pairing]:
        for generation in willing:
            name = self._redundant(generation)
            if name is not None:
                # Its equals would add nothing either.
                generation.barred[self._drafters[name].kin] = generation.rounds + BARRED_ROUNDS
                self._stop(generation, name)
                yield generation, name

    def _redundant(self, generation: Generation) -> str | None:
        models = self._models(generation)
        if len(models) < 2:
            return None
        return generation.contributions.redundant({drafter.card.id: drafter.step_ms for drafter in models})

    def _models(self, generation: Generation) -> list[Drafter]:
        known = [self._drafters[name] for name in generation.sessions if name in self._drafters]
        return [drafter for drafter in known if drafter.card.kind == "model"]

    def _move(self, willing: Sequence[Generation]) -> tuple[Generation, Drafter, Drafter] | None:
        """A request that should go from one drafter to an equal one with at least two requests less, if any."""
        for source in sorted(self._drafters, key=_burden, reverse=True):
            targets = [drafter for drafter in self._drafters if _relieves(drafter, source)]
            movable = [
                generation
                for generation in willing
                if source.card.id in generation.sessions and generation.rounds >= generation.stays_until
            ]
            if targets and movable:
                # The shortest context is read anew soonest.
                return min(movable, key=lambda one: len(one.context)), source, min(targets, key=_burden)
        return None


def _willing(generation: Generation) -> bool:
    return generation.speculation is not Speculation.OFF and not generation.lost


def _burden(drafter: Drafter) -> tuple[int, float, str]:
    """Least loaded first, then the fastest. One that was never timed counts as fast, so that it gets timed."""
    return drafter.requests, drafter.step_ms, drafter.card.id


def _relieves(target: Drafter, source: Drafter) -> bool:
    if target.kin != source.kin or not target.has_room or source.requests - target.requests < 2:
        return False
    return not source.step_ms or target.step_ms <= _MUCH_SLOWER * source.step_ms
