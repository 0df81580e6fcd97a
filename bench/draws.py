"""Times the draw from one row of logits, under the laws that requests ask for, without a model.

Keys of bench/results/draws.json: `vocabulary`; `numpy_exp_microseconds`, of `np.exp` over one float32 row; and
`microseconds`, by law. Each is the fastest of many, as everything else that runs can only add to it.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.versus.results import titled, yes_or_no
from shared.law import draws, native
from shared.law.history import History
from shared.law.sampling import Logits, Mask
from shared.wire.messages import Sampling

RESULTS: Final = Path(__file__).parent / "results" / "draws.json"
VOCABULARY: Final = 151_936
HISTORY: Final = 8_192
# The most that each may take, in times of `np.exp` over the row.
GOALS: Final = {
    "greedy": 0.25,
    "untruncated": 1.0,
    "top_k_top_p": 0.5,
    "repetition_penalty": 0.75,
    "grammar_mask": 0.75,
    "logprobs": 1.2,
}
_ROWS: Final = 8  # read in turn, as a walk does: one row alone would stay in the nearest cache
_TOP_K: Final = Sampling(seed=1, top_k=40)

Case = Callable[[Logits, int], object]


def row(random: np.random.Generator) -> Logits:
    """Logits as models give them: a wide crowd, and above it some tokens that are likely here."""
    logits = random.standard_normal(VOCABULARY).astype(np.float32) * np.float32(2.5)
    likely = random.choice(VOCABULARY, 300, replace=False)
    logits[likely] += np.linspace(6.0, 16.0, likely.size, dtype=np.float32)
    return logits


def cases(random: np.random.Generator) -> dict[str, Case]:
    """What is timed, by name: a function of a row and an offset."""
    history = History(random.integers(VOCABULARY, size=HISTORY).tolist())
    mask: Mask = random.random(VOCABULARY) < 0.1

    def drawn(parameters: Sampling, history: History | None = None, mask: Mask | None = None) -> Case:
        return lambda row, offset: draws.draw(row, parameters, history, mask, offset)

    return {
        "greedy": drawn(Sampling(seed=1, temperature=0.0)),
        "untruncated": drawn(Sampling(seed=1)),
        "top_k_top_p": drawn(Sampling(seed=1, top_k=40, top_p=0.95)),
        "repetition_penalty": drawn(Sampling(seed=1, top_k=40, repetition_penalty=1.1), history),
        "grammar_mask": drawn(_TOP_K, mask=mask),
        "logprobs": lambda row, offset: draws.log_probabilities(row, offset, 5),
    }


def measure(repetitions: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """The contents of the file of results, each figure the best of `repetitions`; all take turns."""
    random = np.random.default_rng(0)
    rows = [row(random) for _ in range(_ROWS)]
    timed: dict[str, Case] = {"": lambda row, offset: np.exp(row), **cases(random)}
    best = dict.fromkeys(timed, float("inf"))
    for repetition in range(repetitions):
        for name, case in timed.items():
            started = clock()
            case(rows[repetition % _ROWS], repetition)
            best[name] = min(best[name], clock() - started)
    microseconds = {name: round(1e6 * seconds, 1) for name, seconds in best.items()}
    return {
        "vocabulary": VOCABULARY,
        "numpy_exp_microseconds": microseconds.pop(""),
        "microseconds": microseconds,
    }


def run(console: Console, repetitions: int) -> None:
    """Measure, print and write the file of results."""
    if native.FAULT:
        console.print(f"numpy draws here: the native code is missing, because {native.FAULT}")
    found = measure(repetitions)
    console.print(table(found))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"written to {RESULTS.relative_to(RESULTS.parents[2])}")


def table(found: dict[str, Any]) -> Table:
    """One line per law, beside `np.exp` over the same row."""
    unit = found["numpy_exp_microseconds"]
    shown = titled(f"one draw, {found['vocabulary']:,} tokens", "", "µs", "of np.exp", "wanted", "reached")
    shown.add_row("np.exp", f"{unit:.1f}", "1.00", "-", "-")
    for name, spent in found["microseconds"].items():
        ratio = spent / unit
        shown.add_row(name, f"{spent:.1f}", f"{ratio:.2f}", f"<= {GOALS[name]:g}", yes_or_no(ratio <= GOALS[name]))
    return shown
