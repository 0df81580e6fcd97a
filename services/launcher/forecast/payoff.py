"""Whether speculation pays, from the measured cost of rows: one sentence, or a width per acceptance rate. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.law.speedup import RowCosts, best_width

LIMIT: Final = 15  # drafts per round; a wider chain is worth little at any acceptance seen in practice
TYPICAL: Final = 0.7  # acceptance of a decent draft model on chat
WORTH: Final = 1.05  # a smaller gain drowns in noise


@dataclass(frozen=True, slots=True)
class Payoff:
    """The best width for one acceptance rate, and what it brings over plain decoding."""

    acceptance: float
    width: int
    speedup: float


def payoff(acceptance: float, row_ms: Mapping[int, float], draft_ms: float = 0.0) -> Payoff:
    """The best width for `acceptance`. A drafter that needs `draft_ms` per token bounds the round from below."""
    costs = RowCosts(row_ms)

    def cost(rows: int) -> float:
        return max(costs(rows), (rows - 1) * draft_ms)

    width, speedup = best_width(acceptance, cost, LIMIT)
    return Payoff(acceptance, width, speedup) if speedup >= WORTH else Payoff(acceptance, 0, 1.0)


def verdict(row_ms: Mapping[int, float]) -> str:
    """One sentence for people: does speculation pay on this target and device?"""
    if not row_ms:
        return "whether speculation pays is not measured yet"
    typical = payoff(TYPICAL, row_ms)
    rows = min((count for count in row_ms if count >= 8), default=max(row_ms))
    cost = f"{rows} rows cost {row_ms[rows] / RowCosts(row_ms)(1):.1f} single steps"
    if not typical.width:
        return f"speculation does not pay here ({cost}), so auto decodes plainly; `draftmesh demo` shows where it does"
    gain = f"up to {typical.speedup:.1f}x with {typical.width} drafts a round at acceptance {TYPICAL}"
    return f"speculation pays here: {gain} ({cost})"
