"""What `draftmesh plan` found, as plain values and as tables of them, so that both say the same. Pure but for printing.

The JSON has `target` (model, device, row_ms, row_cost in single steps), `source` (probe or fleet), `notes` and
`drafts`, one entry per drafter and temperature: step_ms, step_cost, round_trip_ms, alpha with its 95 % interval, the
share of draws that two and three guesses would have met, `widths` (speed-ups), `best`, `improvements` and `verdict`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher.forecast import forecast
from services.launcher.forecast.forecast import Agreement
from shared.law import payoff
from shared.law.payoff import Measurement
from shared.law.speedup import RowCosts

Plain = dict[str, Any]

_WIDTHS: Final = (1, 2, 3, 4, 6, 8, 11, 15)
_WAYS: Final = {"synchronous": "in turn", "ahead": "ahead", "ready": "ready"}
_ROWS: Final = (1, 2, 4, 8, 9, 16, 32)  # those shown of a longer table: a terminal is narrow
_SOURCES: Final = {"probe": "measured now", "fleet": "as the running verifier measures it"}
_CAVEATS: Final = {
    "probe": "Alpha is for the texts of this probe; other texts may differ. Models were timed alone; on one memory they"
    " slow each other.",
    "fleet": "Alpha is of the drafts that this fleet verified, which are the likelier ones.",
}
_LEGEND: Final = (
    "tokens: per round. in turn: draft, then verify. ahead: draft while the target decodes, and after a miss start with"
    " fewer drafts. ready: that many drafts whenever a decode begins."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """One drafter at one temperature; `temperature` None is what a fleet's requests asked for."""

    draft: str
    device: str
    temperature: float | None
    agreement: Agreement
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Everything that was measured."""

    target: str
    device: str
    row_ms: Mapping[int, float]
    source: str  # "probe" or "fleet"
    prospects: Sequence[Prospect]
    notes: Sequence[str] = ()  # what could not be measured, and what was taken instead


def describe(outlook: Outlook) -> Plain:
    """The measurements and what follows from them."""
    single = RowCosts(outlook.row_ms)(1)
    return {
        "target": {
            "model": outlook.target,
            "device": outlook.device,
            "row_ms": dict(outlook.row_ms),
            "row_cost": {rows: ms / single for rows, ms in outlook.row_ms.items()},
        },
        "source": outlook.source,
        "notes": list(outlook.notes),
        "drafts": [_prospect(outlook, prospect) for prospect in outlook.prospects],
    }


def _prospect(outlook: Outlook, prospect: Prospect) -> Plain:
    agreement, measured = prospect.agreement, prospect.measurement
    pair = None if agreement.second is None else _share(agreement.second, agreement)
    low, high = agreement.interval
    best = {"synchronous": payoff.synchronous, "ahead": payoff.ahead, "ready": payoff.ready}
    return {
        "model": prospect.draft,
        "device": prospect.device,
        "temperature": prospect.temperature,
        "step_ms": measured.draft_ms,
        "step_cost": measured.draft_ms / measured.cost()(1),
        "round_trip_ms": measured.round_trip_ms,
        "judged": agreement.judged,
        "alpha": agreement.alpha,
        "alpha_low": low,
        "alpha_high": high,
        "best_of_two": pair,
        "best_of_three": None if agreement.third is None else _share(agreement.third, agreement),
        "turns": measured.turns,
        "widths": [asdict(forecast.at_width(measured, width)) for width in _WIDTHS],
        "best": {way: asdict(payoff.best(formula(measured))) for way, formula in best.items()},
        "improvements": [
            asdict(change) for change in forecast.improvements(measured, pair, _cooler(outlook, prospect))
        ],
        "verdict": payoff.sentence(measured),
    }


def _share(hits: int, agreement: Agreement) -> float:
    return hits / agreement.judged if agreement.judged else 0.0


def _cooler(outlook: Outlook, prospect: Prospect) -> tuple[float, float] | None:
    """The next lower temperature at which the same drafter was probed."""
    if prospect.temperature is None:
        return None
    lower = [
        (other.temperature, other.agreement.alpha)
        for other in outlook.prospects
        if other.draft == prospect.draft
        and other.device == prospect.device
        and other.temperature is not None
        and other.temperature < prospect.temperature
    ]
    return max(lower, default=None)


def show(console: Console, found: Plain) -> None:
    """Print the tables."""
    target = found["target"]
    counts = [rows for rows in target["row_ms"] if rows in _ROWS] or list(target["row_ms"])
    source = _SOURCES[found["source"]]
    rows = _table(f"cost of rows: {target['model']} on {target['device']}, {source}", "rows", *map(str, counts))
    rows.add_row("ms", *(f"{target['row_ms'][count]:.1f}" for count in counts))
    rows.add_row("steps", *(f"{target['row_cost'][count]:.2f}" for count in counts))
    console.print(rows)
    drafts = found["drafts"]
    console.print(_table_of_drafts(drafts))
    console.print(Text(_LEGEND, "dim"), soft_wrap=True)
    for draft in drafts:
        _show_draft(console, draft)
    for note in (*found["notes"], _CAVEATS[found["source"]]):
        console.print(Text(note, "dim"), soft_wrap=True)


def _table_of_drafts(drafts: Sequence[Plain]) -> Table:
    table = _table("drafters", "draft", "ms", "steps", "rtt ms", "temp.", "alpha (95 %)", "of 2", "of 3", "draws")
    for draft in drafts:
        table.add_row(
            Text(f"{draft['model']} on {draft['device']}"),
            f"{draft['step_ms']:.1f}",
            f"{draft['step_cost']:.2f}",
            f"{draft['round_trip_ms']:.1f}",
            _temperature(draft),
            f"{draft['alpha']:.2f} ({draft['alpha_low']:.2f}–{draft['alpha_high']:.2f})",
            _optional(draft["best_of_two"]),
            _optional(draft["best_of_three"]),
            str(draft["judged"]),
        )
    return table


def _show_draft(console: Console, draft: Plain) -> None:
    when = f", temperature {_temperature(draft)}" if draft["temperature"] is not None else ""
    table = _table(f"speed-up with {draft['model']}{when}", "drafts", *map(str, _WIDTHS), "best")
    table.add_row("tokens", *(f"{width['tokens']:.2f}" for width in draft["widths"]), "")
    for way, label in _WAYS.items():
        best = draft["best"][way]
        summary = f"{best['speedup']:.2f} ({best['width']})" if best["width"] else "plain"
        table.add_row(label, *(f"{width[way]:.2f}" for width in draft["widths"]), summary)
    console.print(table)
    console.print(Text(draft["verdict"]), soft_wrap=True)
    now = draft["best"]["synchronous" if draft["turns"] else "ahead"]["speedup"]
    for improvement in draft["improvements"]:
        line = f"  with {improvement['change']}: {improvement['speedup']:.2f}x instead of {now:.2f}x"
        console.print(Text(line), soft_wrap=True)
    if not draft["improvements"]:
        console.print(Text("  no single change would help"))


def _temperature(draft: Plain) -> str:
    return "–" if draft["temperature"] is None else f"{draft['temperature']:g}"


def _optional(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left")
