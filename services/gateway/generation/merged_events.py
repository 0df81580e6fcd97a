"""All events of an answer as the fewest that say the same. Pure."""

from services.gateway.formats.parts import Part, merged
from services.gateway.generation.choice import CommittedToken, Delta, Event, Finished


class MergedEvents:
    """Takes every event of an answer with `choices` choices, and gives the same answer in two events for each choice.

    These are one delta, which may be empty, and the end, as if the choice had come in one commit.
    """

    def __init__(self, choices: int) -> None:
        self._pieces: list[list[CommittedToken]] = [[] for _ in range(choices)]
        self._parts: list[list[Part]] = [[] for _ in range(choices)]
        self._tails = [""] * choices
        self._ends: dict[int, Finished] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, Finished):
            self._ends[event.choice] = event
        else:
            self._pieces[event.choice] += event.pieces
            self._parts[event.choice] += event.parts
            self._tails[event.choice] += event.tail

    def events(self) -> list[Event]:
        """In the order of the choices, all of which must have finished."""
        events: list[Event] = []
        for index, tail in enumerate(self._tails):
            delta = Delta(index, tuple(self._pieces[index]), merged(self._parts[index]), tail)
            events += [delta, self._ends[index]]
        return events
