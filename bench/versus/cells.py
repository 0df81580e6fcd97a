"""The cells of the comparison: of which pair of models, what each measures, about how long it takes, how it is run.

Each of them models either *two devices*, where target and draft have a core each, or *one machine*, where everybody
uses all cores.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.files import slow_draft
from bench.pairs import PairName
from bench.versus.against_ourselves import delay, no_gain, nopay
from bench.versus.edit import edit
from bench.versus.results import CellResult
from bench.versus.setup import Setup
from bench.versus.speed import Wanted, four, one_machine, one_request
from bench.versus.turn import turn

Measure = Callable[[Setup, str], Awaitable[CellResult]]

_TOLD: Final[Wanted] = {0.0: None, 1.0: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestCell:
    """One part of the comparison. The minutes are what it takes on two cores: `fixed` to load and choose peers'
    settings, `each` per repetition."""

    name: str
    what: str
    fixed: float
    each: float
    run: Measure
    peers: bool = True  # whether it needs a peer


def _slow(setup: Setup) -> Path:
    setup.step("slow: building its draft if it is missing")
    return slow_draft(setup.pair, setup.default_model)


def _apart(draft: Callable[[Setup], Path], wanted: Wanted) -> Measure:
    """Target and draft on a core each."""
    return lambda setup, name: one_request(setup, name, draft(setup), wanted)


def _together(draft: Callable[[Setup], Path], wanted: Wanted) -> Measure:
    """Target and draft on all cores."""
    return lambda setup, name: one_machine(setup, name, draft(setup), wanted)


def _cells(*rows: tuple[str, str, float, float, Measure]) -> tuple[ContestCell, ...]:
    return tuple(
        ContestCell(name=name, what=what, fixed=fixed, each=each, run=run, peers=run not in (delay, nopay, no_gain))
        for name, what, fixed, each, run in rows
    )


_WIDENED: Final = _cells(
    ("8bit", "8-bit draft; two devices", 8.0, 1.0, _apart(lambda s: s.pair.draft_8bit, {0.0: 1.25, 1.0: 2.0})),
    ("4bit", "4-bit draft; two devices", 8.0, 1.4, _apart(lambda s: s.pair.draft_4bit, {0.0: 1.2, 1.0: 1.3})),
    ("slow", "draft four times as slow; two devices", 8.0, 1.2, _apart(_slow, {0.0: 1.45, 1.0: 2.0})),
    ("four", "four requests at once; two devices", 3.2, 1.3, lambda s, name: four(s, name, {0.0: 1.2, 1.0: 1.4})),
    ("one-machine", "8-bit draft; one machine", 5.0, 0.8, _together(lambda s: s.pair.draft_8bit, _TOLD)),
    ("edit", "code edit by lookup; two devices", 0.5, 1.2, edit),
    ("turn", "second turn of a conversation", 0.4, 1.3, turn),
    ("delay", "a distant drafter", 0.4, 0.5, delay),
    ("nopay", "drafts that cannot pay; two devices", 0.7, 0.7, nopay),
)
_QWEN: Final = _cells(
    ("two-devices", "a core each: two devices", 7.2, 1.6, _apart(lambda s: s.pair.draft_4bit, {0.0: 1.7, 1.0: 2.2})),
    (
        "one-machine",
        "all cores for everybody: one machine",
        4.7,
        1.0,
        _together(lambda s: s.pair.draft_4bit, {0.0: 1.1, 1.0: 1.4}),
    ),
    ("no-gain", "a drafter that cannot pay; one machine", 2.5, 1.7, no_gain),
)

CELLS: Final = {PairName.WIDENED: _WIDENED, PairName.QWEN: _QWEN}
