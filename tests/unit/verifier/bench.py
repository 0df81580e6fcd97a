"""An engine over a toy target, for tests that run rounds by hand."""

from collections.abc import Callable
from typing import Any

from services.verifier.engine import Engine
from services.verifier.generation import Generation
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.wire.jobs import Claim
from shared.wire.messages import Chunk, Finish, Job, Proposal, Site
from tests.toys import EOG, ToyTarget, drafter_card

CHEAP = {1: 10.0, 2: 10.1, 8: 10.7, 64: 16.0}


DEAR = {1: 10.0, 2: 20.0, 64: 640.0}


class Bench:
    """An engine over a toy target, a clock that only decodes and tests move, and the answers so far."""

    def __init__(
        self,
        costs: dict[int, float] | None = None,
        drafters: tuple[str, ...] = ("d",),
        cache_ram: int = 0,
        copy_ms: float = 0.0,
        threads: int = 0,
        graph_ms: float = 0.0,
        min_rows: int = 1,
        kind: type[ToyTarget] = ToyTarget,
        **target: Any,
    ) -> None:
        self.now = 0.0
        prices = RowCosts(costs or CHEAP)
        self.target = kind(took=lambda rows: self.spend(prices(rows)), copies=lambda: self.spend(copy_ms), **target)
        self.engine = Engine(
            self.target, RowCosts(costs or CHEAP), [EOG], clock=lambda: self.now, cache_ram=cache_ram,
            site=Site(threads=threads, most=threads), graph_ms=graph_ms,
            min_rows=min_rows,
        )  # fmt: skip
        self.engine.drafters.update([drafter_card(name, model=name) for name in drafters])
        self.answers: dict[str, list[int]] = {}
        self.finishes: dict[str, Finish] = {}
        self.chunks: list[Chunk] = []

    def spend(self, ms: float) -> None:
        self.now += ms / 1000

    def admit(self, request: Job, output: list[int] | None = None) -> Generation:
        claim = Claim(job=request, epoch=1, committed=len(output or []), remaining_ms=10_000)
        generation = self.engine.admit(claim, output or [])
        self.engine.assignment.enlist(generation, self.now * 1000)
        self.answers[request.request_id] = list(output or [])
        return generation

    def propose(
        self, generation: Generation, base: int, tokens: list[int], source: str = "d",
        score: float = 0.9, parents: tuple[int, ...] = (), copied: int = 0,
    ) -> None:  # fmt: skip
        committed = generation.context[len(generation.job.prompt) :]
        at = prefix.extend_all(prefix.EMPTY, [*generation.job.prompt, *committed[:base]])
        proposal = Proposal(
            request_id=generation.job.request_id, epoch=1, base=base, prefix_hash=at, tokens=tuple(tokens),
            scores=(score,) * len(tokens), drafter=source, step_us=1000,
            parents=parents, copied=copied,
        )  # fmt: skip
        self.engine.take([proposal], self.now * 1000)

    def round(self) -> None:
        plan = self.engine.plan(may_wait=False)
        decoded = self.engine.run(plan)
        self._check_branches()
        for gain in self.engine.finish(decoded):
            if gain.chunk is None:
                continue
            self.chunks.append(gain.chunk)
            name = gain.generation.job.request_id
            assert gain.base == len(self.answers[name])
            self.answers[name] += gain.chunk.tokens
            if gain.chunk.finish is not Finish.NONE:
                self.finishes[name] = gain.chunk.finish
                self.engine.drop(gain.generation)

    def _check_branches(self) -> None:
        """A branch keeps nothing that its slot does not hold: the cells of both would stay taken."""
        for slot in self.engine.sequences.slots:
            cells = self.target.cells[slot.id]
            for spare in self.engine.sequences.spares(slot):
                kept = self.target.cells[spare]
                assert kept == cells[: len(kept)]

    def finish(self, before: Callable[[], None] = lambda: None) -> None:
        for _ in range(1000):
            if not self.engine.running:
                return
            before()
            self.round()
        raise AssertionError("the requests never end")
