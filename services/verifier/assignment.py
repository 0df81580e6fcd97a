"""Assigns drafters to requests: evenly, no two alike on one request, and none that adds nothing there. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.verifier.drafters import Drafter, Drafters, Kin
from services.verifier.generation import Generation
from shared.wire.messages import Speculation

# Two model drafters together already find most of what any would, so a third helps another request more.
PER_REQUEST: Final = {"lookup": 1, "model": 2}
# A drafter that added nothing is not tried again for this many rounds, so that trials take a fifth of the time.
BARRED_ROUNDS: Final = 256
# A moved request stays for this many rounds, because its new drafter must read the whole context first.
STAY_ROUNDS: Final = 64
# A request is not moved to a drafter whose steps take this many times as long, however idle that is.
_MUCH_SLOWER: Final = 2.0

Pairing = tuple[Generation, str]  # a request and the id of a drafter


@dataclass(slots=True)
class _Terms:
    """What binds one request; counted in its rounds."""

    barred: dict[Kin, int] = field(default_factory=dict)  # released drafters, until that round
    stays_until: int = 0  # the round before which it is not moved to another drafter


class Assignment:
    """Opens and closes the sessions of requests. `due` says that `reassign` may find something to change."""

    def __init__(self, drafters: Drafters) -> None:
        self.due = False
        self._drafters = drafters
        self._terms: defaultdict[Generation, _Terms] = defaultdict(_Terms)

    def enlist(self, generation: Generation, now_ms: float) -> list[str]:
        """Give a request the drafters that it lacks and forget those that are gone; returns the new ones."""
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
            self._terms[generation].stays_until = generation.rounds + STAY_ROUNDS
            closed.append((generation, source.card.id))
            opened.append((generation, target.card.id))
        opened += [(generation, name) for generation in willing for name in self.enlist(generation, now_ms)]
        return opened, closed

    def round_ended(self, generation: Generation) -> None:
        """A request finished a round, so it may have a drafter to release, or may try one again."""
        if generation.rounds in self._terms[generation].barred.values() or self._redundant(generation) is not None:
            self.due = True

    def request_ended(self, generation: Generation) -> None:
        """A request ended, so its drafters are free for others."""
        for name in generation.sessions:
            if name in self._drafters:
                self._drafters[name].was_released()
        self._terms.pop(generation, None)
        self.due = True

    def _start(self, generation: Generation, name: str, now_ms: float) -> None:
        self._drafters[name].was_assigned()
        generation.open_session(name, now_ms)

    def _stop(self, generation: Generation, name: str) -> None:
        self._drafters[name].was_released()
        generation.close_session(name)

    def _forget(self, generation: Generation) -> None:
        """Close the sessions of drafters that are gone."""
        gone = [name for name in generation.sessions if name not in self._drafters]
        for name in gone:
            generation.close_session(name)
        if gone and not self._models(generation):
            # A barred drafter added nothing beside one that is gone now; alone it may help.
            self._terms[generation].barred.clear()

    def _choose(self, generation: Generation) -> list[str]:
        """The drafters that a request should gain: the least loaded, and none like those that it has or released."""
        present = [self._drafters[name] for name in generation.sessions]
        taken = {drafter.kin for drafter in present}
        taken |= {kin for kin, until in self._terms[generation].barred.items() if generation.rounds < until}
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
                # This bars all drafters of its kin, because they would add nothing either.
                self._terms[generation].barred[self._drafters[name].kin] = generation.rounds + BARRED_ROUNDS
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
        """A request to move, its drafter, and the like one with at least two requests fewer to move it to."""
        for source in sorted(self._drafters, key=_burden, reverse=True):
            targets = [drafter for drafter in self._drafters if _relieves(drafter, source)]
            movable = [
                generation
                for generation in willing
                if source.card.id in generation.sessions and generation.rounds >= self._terms[generation].stays_until
            ]
            if targets and movable:
                # The new drafter reads the shortest context soonest.
                return min(movable, key=lambda one: len(one.context)), source, min(targets, key=_burden)
        return None


def _willing(generation: Generation) -> bool:
    return generation.speculation is not Speculation.OFF and not generation.lost


def _burden(drafter: Drafter) -> tuple[int, float, str]:
    """Sorts the least loaded first, then the fastest. An untimed drafter counts as fast, so that it gets timed."""
    return drafter.requests, drafter.step_ms, drafter.card.id


def _relieves(target: Drafter, source: Drafter) -> bool:
    if target.kin != source.kin or not target.has_room or source.requests - target.requests < 2:
        return False
    return not source.step_ms or target.step_ms <= _MUCH_SLOWER * source.step_ms
