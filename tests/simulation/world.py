"""A verifier's real engine in simulated time: a target whose decodes move the clock, a drafter of known acceptance.

Nothing sleeps and nothing is random but the seeded coins, so a run is a function of its arguments. The engine is driven
as the verifier's worker drives it: plan, wait, decode, take what came meanwhile, finish, tell the drafter.
"""

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
from msgspec.structs import replace

from services.verifier.engine import LEAD, Engine
from services.verifier.generation import Generation
from services.verifier.round import Round
from shared.law import prefix
from shared.law.sampling import Logits
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.wire import drafts
from shared.wire.jobs import Claim
from shared.wire.messages import NOWHERE, Commit, Job, Proposal, Sampling, Site
from tests.toys import drafter_card

PLAIN_MS = 10.0  # a decode of one row; everything else is said in multiples of it
TAIL = 64  # tokens at the end that are not counted: the answer's end cuts the last rounds short
_VOCABULARY = 8
_NAME = "d"


def coins(alpha: float, misses: int, seed: int) -> list[bool]:
    """Whether a guess at each offset is right: Bernoulli(`alpha`), stratified so that few runs are many enough.

    The lengths between misses are geometric, one from each of `misses` equally likely strata, in seeded random order.
    """
    source = random.Random(seed)
    uniforms = [(index + source.random()) / misses for index in range(misses)]
    source.shuffle(uniforms)
    lengths = [int(np.log1p(-uniform) / np.log(alpha)) for uniform in uniforms]
    return [right for length in lengths for right in (*[True] * length, False)]


class Oracle:
    """A target that knows its answer: the logits of a row depend on its position alone."""

    n_vocab = _VOCABULARY
    can_roll_back = True
    can_copy = True
    states = None
    unified = True
    sequences = 1
    branches = 0
    max_rows = 512

    def __init__(self, answer: Sequence[int], took: Callable[[int, bool], None]) -> None:
        """`answer` follows a prompt of one token; `took` is told a decode's rows, and whether it keeps its graph."""
        self.n_ctx = len(answer) + 64
        self._answer = answer
        self._took = took
        self._rows = Rows()
        self.reused_graphs = 0
        self._logits: list[Logits] = list(np.eye(_VOCABULARY, dtype=np.float32) * 9.0)

    def decode(self, rows: Rows) -> None:
        reused = rows.shape == self._rows.shape
        self.reused_graphs += reused
        self._rows = rows
        self._took(len(rows), reused)

    def use_threads(self, count: int) -> None:
        """Its decodes take as long with any number."""

    def logits(self, row: int) -> Logits:
        position = self._rows.positions[row]
        return self._logits[self._answer[position]] if position < len(self._answer) else self._logits[0]

    def floor(self, sequence: int) -> int:
        """It forgets nothing."""
        return 0

    def truncate(self, sequence: int, length: int) -> int:
        """Only positions matter here, and the engine keeps count of them."""
        return length

    def clear(self) -> None:
        raise AssertionError("its logits are never broken")

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        raise AssertionError("one sequence has nobody to copy from")


@dataclass(slots=True)
class SimulatedDrafter:
    """One chain, a token per `step_ms`, as the drafter's worker does it: hints between steps, several tokens a message.

    A `step_ms` of 0 means that drafts come all at once, as lookup's do.
    """

    answer: Sequence[int]
    right: Sequence[bool]
    step_ms: float
    prompt_hash: int
    committed: int = 0
    lead: int = LEAD
    want: int = 0
    path: list[int] = field(default_factory=list)  # guesses beyond what is committed
    true: bool = True  # the path agrees with the answer so far
    hashes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.hashes = [self.prompt_hash]

    @property
    def busy(self) -> bool:
        return len(self.path) < self.lead and self.committed + len(self.path) < len(self.answer)

    @property
    def burst(self) -> int:
        return drafts.burst(len(self.path), self.want)

    def guess(self) -> int:
        offset = self.committed + len(self.path)
        token = self.answer[offset]
        if not (self.true and self.right[offset]):
            token, self.true = (token + 1) % _VOCABULARY, False
        self.path.append(token)
        self.hashes.append(prefix.extend(self.hashes[-1], token))
        return token

    def commit(self, hint: Commit) -> None:
        """Keep what the target confirmed; start anew from where it decided otherwise."""
        self.lead, self.want = hint.lead, hint.want
        for token in hint.tokens:
            if self.path and self.path[0] == token:
                self.path.pop(0)
            else:
                if self.path:
                    del self.hashes[self.committed + 1 :]
                    self.path.clear()
                self.true = True
                self.hashes.append(prefix.extend(self.hashes[-1], token))
            self.committed += 1

    def message(self, base: int, tokens: Sequence[int]) -> Proposal:
        return Proposal(
            request_id="r", epoch=1, base=base, prefix_hash=self.hashes[base], tokens=tuple(tokens),
            scores=(0.8,) * len(tokens), drafter=_NAME, step_us=int(self.step_ms * 1000),
        )  # fmt: skip


class World:
    """One request, one verifier, one drafter `hop_ms` away in each direction. Times are milliseconds."""

    def __init__(
        self,
        cost: RowCosts,
        right: Sequence[bool],
        step_ms: float,
        hop_ms: float,
        seed: int = 1,
        silent_from: float = math.inf,
        site: Site = NOWHERE,
        graph_ms: float = 0.0,
    ) -> None:
        """After `silent_from` committed tokens nothing of the drafter arrives. Both compute at `site`.

        A new graph takes `graph_ms` beside what the rows cost.
        """
        source = random.Random(seed)
        answer = [source.randrange(_VOCABULARY) for _ in right]
        self.now = 0.0
        self._cost = cost
        self._hop_ms = hop_ms
        self._graph_ms = graph_ms
        self._silent_from = silent_from
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._arrived: list[tuple[float, Proposal]] = []
        self._hints: list[Commit] = []
        self._stepping = False
        self._found: list[int] = []
        self._burst = 1
        self.beside = 0  # steps of the drafter that began while the target decoded
        self._decoding = False
        self._drafter = SimulatedDrafter(answer, right, step_ms, prefix.extend_all(prefix.EMPTY, [0]))
        target = Oracle(answer, self._decoded)
        self.engine = Engine(
            target, RowCosts(dict(cost.table)), [], clock=lambda: self.now / 1000, site=site, graph_ms=graph_ms
        )
        self.engine.drafters.update([replace(drafter_card(_NAME), site=site, step_ms=step_ms)])
        job = Job(
            request_id="r",
            model="m",
            prompt=(0,),
            sampling=Sampling(seed=0, temperature=0.0),
            max_tokens=len(answer),
            timeout_ms=1 << 40,
        )
        self._generation = self.engine.admit(Claim(job=job, epoch=1, committed=0, remaining_ms=1 << 40), [])
        self.engine.reassign()

    def run(self, warm_up: int) -> float:
        """Tokens per plain step, from the first round after `warm_up` tokens on: the speed-up over plain decoding."""
        generation = self._generation
        end = generation.job.max_tokens - TAIL
        began = (0, 0.0)
        self._start_burst()
        while generation.offset < end:
            if began[0] == 0 and generation.offset >= warm_up:
                began = (generation.offset, self.now)
            self._round(generation)
        return (generation.offset - began[0]) / (self.now - began[1]) * self._cost(1)

    # ------------------------------------------------------------ the verifier

    def _round(self, generation: Generation) -> None:
        engine = self.engine
        self._take()
        round = engine.plan()
        if round.wait_ms:
            round = self._wait(round.wait_ms)
        if not len(round.rows):
            return
        decoded = engine.run(round)
        self._take()
        for gain in engine.finish(decoded):
            assert gain.chunk is not None
            commit = Commit(
                request_id="r",
                epoch=1,
                base=gain.base,
                tokens=gain.chunk.tokens,
                lead=engine.lead(generation, _NAME),
                want=generation.sessions[_NAME].want,
            )
            self._at(self.now + self._hop_ms, partial(self._hear, commit))

    def _wait(self, wait_ms: float) -> Round:
        deadline = self.now + wait_ms
        while self.now < deadline:
            self._run_until(deadline, stop=lambda: bool(self._arrived))
            self._take()
            round = self.engine.plan()
            if not round.wait_ms:
                return round
        return self.engine.plan(may_wait=False)

    def _arrive(self, message: Proposal) -> None:
        if self._generation.offset < self._silent_from:
            self._arrived.append((self.now, message))

    def _decoded(self, rows: int, reused: bool) -> None:
        self._decoding = True
        self._run_until(self.now + self._cost(rows) + (0.0 if reused else self._graph_ms))
        self._decoding = False

    def _take(self) -> None:
        self._run_until(self.now)
        arrived, self._arrived = self._arrived, []
        for moment, message in arrived:
            self.engine.take([message], moment)

    # ------------------------------------------------------------ the drafter

    def _hear(self, commit: Commit) -> None:
        self._hints.append(commit)
        if not self._stepping:
            self._start_burst()

    def _start_burst(self) -> None:
        for hint in self._hints:
            self._drafter.commit(hint)
        self._hints.clear()
        if self._drafter.busy:
            self._burst = self._drafter.burst
            self._stepping = True
            self._at(self.now + self._drafter.step_ms, self._stepped)

    def _stepped(self) -> None:
        self._stepping = False
        self.beside += self._decoding
        drafter = self._drafter
        base = drafter.committed + len(drafter.path) - len(self._found)
        self._found.append(drafter.guess())
        if drafter.step_ms == 0:
            while drafter.busy:
                self._found.append(drafter.guess())
        elif len(self._found) < self._burst and drafter.busy and not self._hints:
            self._stepping = True
            self._at(self.now + drafter.step_ms, self._stepped)
            return
        message = drafter.message(base, self._found)
        self._found = []
        self._start_burst()
        message = replace(message, batch=self._burst if self._stepping else 0)
        self._at(self.now + self._hop_ms, partial(self._arrive, message))

    # ------------------------------------------------------------ time

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    def _run_until(self, moment: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let happen what happens up to `moment`, or until `stop` holds; then it is that time."""
        while self._events and self._events[0][0] <= moment:
            self.now, _, act = heapq.heappop(self._events)
            act()
            if stop():
                return
        self.now = max(self.now, moment)
