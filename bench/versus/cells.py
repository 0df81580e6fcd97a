"""The cells of the comparison by name: what each measures, about how long it takes, and how it is run."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.versus.against_ourselves import delay, nopay
from bench.versus.edit import edit
from bench.versus.results import CellResult
from bench.versus.setup import Setup
from bench.versus.speed import four, one_request
from bench.versus.turn import turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestCell:
    """One part of the comparison. The minutes are what it takes on two cores: `fixed` to load and choose peers'
    settings, `each` per repetition."""

    name: str
    what: str
    fixed: float
    each: float
    run: Callable[[Setup, str], Awaitable[CellResult]]
    peers: bool = True  # whether it needs a peer


def _drafted(
    draft: Callable[[Setup], Path], wanted: Mapping[float, float]
) -> Callable[[Setup, str], Awaitable[CellResult]]:
    return lambda setup, name: one_request(setup, name, draft(setup), wanted)


CELLS: Final = tuple(
    ContestCell(name=name, what=what, fixed=fixed, each=each, run=run, peers=run not in (delay, nopay))
    for name, what, fixed, each, run in (
        ("8bit", "8-bit draft", 2.3, 1.0, _drafted(lambda setup: setup.pair.draft_8bit, {0.0: 1.25, 1.0: 2.0})),
        ("4bit", "4-bit draft", 2.3, 1.4, _drafted(lambda setup: setup.pair.draft_4bit, {0.0: 1.2, 1.0: 1.3})),
        ("slow", "8-bit draft, four times as slow", 2.3, 1.2, _drafted(lambda s: s.slow_draft, {0.0: 1.45, 1.0: 2.0})),
        ("four", "four requests at once", 3.2, 1.3, lambda s, name: four(s, name, {0.0: 1.2, 1.0: 1.4})),
        ("edit", "code edit by lookup", 0.5, 1.2, edit),
        ("turn", "second turn of a conversation", 0.4, 1.3, turn),
        ("delay", "a distant drafter", 0.4, 0.5, delay),
        ("nopay", "drafts that cannot pay", 0.7, 0.7, nopay),
    )
)
