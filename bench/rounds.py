"""Times what an engine does around a decode, phase by phase, without a model, Redis or threads.

The target is `bench.paced.target.Emulated`. Its decodes move the engine's clock and take no time. One drafter guesses a
tree for each request and round: a chain of four tokens, of which the first are right, and a wrong one beside each.
A plan that only waits for drafts counts, and what it waits for does not come.

Keys of bench/results/rounds.json: `vocabulary`; `threads` that draw, as many as there are cores; and `microseconds`, by
case and phase (`PHASES`). Each is the mean of the fastest tenth of the rounds, as everything else that runs can only
add to it.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.paced import bigram
from bench.paced.target import Curve, Emulated
from bench.versus.results import titled, yes_or_no
from services.verifier import hints
from services.verifier.engine import Engine
from services.verifier.generation import Generation
from shared.law import prefix
from shared.wire.jobs import Claim
from shared.wire.messages import DrafterCard, Job, Proposal, Sampling, Site

RESULTS: Final = Path(__file__).parent / "results" / "rounds.json"
PHASES: Final = ("take", "plan", "walk", "settle")


@dataclass(frozen=True, slots=True)
class Case:
    """Each request has `right` right guesses a round, so `right` + 1 draws; all phases together may take `goal_us`."""

    requests: int
    temperature: float
    right: int
    goal_us: float = math.inf


CASES: Final = {
    "T=0, 1 request, 5 draws": Case(1, 0.0, 4, 600.0),
    "T=1, 1 request, 5 draws": Case(1, 1.0, 4, 1000.0),
    "T=0, 8 requests, 24 draws": Case(8, 0.0, 2),
    "T=1, 8 requests, 24 draws": Case(8, 1.0, 2, 4000.0),
}
_CURVE: Final = Curve(10.0, 0.5)
_PROMPT: Final = (1, 2, 3)
_CHAIN: Final = 4
_PARENTS: Final = (*range(-1, _CHAIN - 1), *range(-1, _CHAIN - 1))  # a chain, and one alternative beside each link


class Rounds:
    """Runs rounds by hand, with the guesses of a drafter that knows the answers, and notes what each phase takes."""

    def __init__(
        self, rows: bigram.Table, case: Case, rounds: int, clock: Callable[[], float], threads: int = 1
    ) -> None:
        """The answers last for `rounds` rounds. So many threads may draw."""
        tokens = (_CHAIN + 1) * (rounds + 2)
        self._case = case
        self._clock = clock
        self._decoded_s = 0.0  # what all decodes would have taken
        target = Emulated(
            rows, _CURVE, n_ctx=2 * tokens, sequences=case.requests, clock=self._now, until=self._decode_until
        )
        site = Site(threads=threads, most=threads)
        self._engine = Engine(target, _CURVE.costs, [bigram.END], clock=self._now, site=site)
        self._engine.drafters.update([_card()])
        self._answers: dict[str, list[int]] = {}
        self.times: list[dict[str, float]] = []
        for index in range(case.requests):
            law = Sampling(seed=index, temperature=case.temperature)
            job = Job(request_id=f"r{index}", model="m", prompt=_PROMPT, sampling=law, max_tokens=tokens)
            self._answers[job.request_id] = list(islice(bigram.answer(rows, _PROMPT[-1], law), tokens + _CHAIN))
            claim = Claim(job=job, epoch=1, committed=0, remaining_ms=3_600_000)
            self._engine.admit(claim, [])
        self._tell(self._engine.reassign()[0])

    def _now(self) -> float:
        return self._clock() + self._decoded_s

    def _decode_until(self, moment: float) -> None:
        self._decoded_s += moment - self._now()

    @property
    def tokens(self) -> int:
        """Of all answers so far."""
        return self._engine.counters.values["tokens"]

    def run(self, rounds: int) -> None:
        """Run so many rounds."""
        for _ in range(rounds):
            self._round([self._proposal(generation) for generation in self._engine.running])

    def _round(self, proposals: list[Proposal]) -> None:
        spent: dict[str, float] = {}
        with self._timed("take", spent):
            self._engine.take(proposals, self._now() * 1000)
        with self._timed("plan", spent):
            round = self._engine.plan()
        if round.wait_ms:  # for more guesses than there will be
            round = self._engine.plan(may_wait=False)
        with self._timed("walk", spent):
            decoded = self._engine.run(round)
        with self._timed("settle", spent):
            for gain in self._engine.finish(decoded):
                if gain.chunk is not None:
                    hints.decided(gain, gain.chunk.tokens, self._engine, "v", "gpu")
        if not round.prefill_rows:
            self.times.append(spent)

    @contextmanager
    def _timed(self, phase: str, spent: dict[str, float]) -> Iterator[None]:
        began = self._clock()
        yield
        spent[phase] = 1e6 * (self._clock() - began)

    def _tell(self, opened: list[tuple[Generation, str]]) -> None:
        for generation, name in opened:
            hints.opening(generation, name, self._engine, "v", "gpu")

    def _proposal(self, generation: Generation) -> Proposal:
        """A chain whose first tokens will come, and a wrong token beside each."""
        base = generation.offset
        coming = self._answers[generation.job.request_id][base : base + _CHAIN]
        wrong = [_other(token) for token in coming]
        chain = [*coming[: self._case.right], *wrong[self._case.right :]]
        beside = [*wrong[: self._case.right], *map(_other, wrong[self._case.right :])]
        return Proposal(
            request_id=generation.job.request_id,
            epoch=1,
            base=base,
            prefix_hash=prefix.extend_all(prefix.EMPTY, generation.context),
            tokens=(*chain, *beside),
            scores=(0.8,) * _CHAIN + (0.15,) * _CHAIN,
            drafter="d",
            step_us=1000,
            parents=_PARENTS,
        )


def _other(token: int) -> int:
    return token % (bigram.TOKENS - 1) + 1


def _card() -> DrafterCard:
    return DrafterCard(
        id="d", host="h", pid=1, kind="model", model="m", fingerprint="", vocabulary="", n_vocab=bigram.TOKENS,
        device="gpu", capacity=64, sessions=0, tokens_per_second=0.0,
    )  # fmt: skip


def measure(rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """The contents of the file of results, from so many rounds of each case."""
    rows, threads = bigram.table(), len(os.sched_getaffinity(0))
    found = {name: _of_case(Rounds(rows, case, rounds, clock, threads), rounds) for name, case in CASES.items()}
    return {"vocabulary": bigram.TOKENS, "threads": threads, "microseconds": found}


def _of_case(one: Rounds, rounds: int) -> dict[str, float]:
    one.run(rounds)
    fastest = max(1, len(one.times) // 10)
    return {phase: round(mean(sorted(times[phase] for times in one.times)[:fastest]), 1) for phase in PHASES}


def run(console: Console, rounds: int) -> None:
    """Measure, print and write the file of results."""
    found = measure(rounds)
    console.print(table(found))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"written to {RESULTS.relative_to(RESULTS.parents[2])}")


def table(found: dict[str, Any]) -> Table:
    """One line per case."""
    shown = titled(f"a round without its decode, {found['vocabulary']:,} tokens, µs", "", *PHASES, "all", "wanted", "")
    for name, case in CASES.items():
        spent = found["microseconds"][name]
        total = sum(spent.values())
        wanted = (f"<= {case.goal_us:g}", yes_or_no(total <= case.goal_us)) if case.goal_us < math.inf else ("-", "-")
        shown.add_row(name, *(f"{spent[phase]:.0f}" for phase in PHASES), f"{total:.0f}", *wanted)
    return shown
