"""Plans a round: which requests get which rows in the next decode, or how long to wait for drafts first.

The scheduler chooses the widths, and `Fitting` the shape. The planner notes for each request without drafts why it has
none.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.verifier import following
from services.verifier.counters import Counters
from services.verifier.drafters import Drafters
from services.verifier.fitting import Fitted, Fitting, Piece, Widths
from services.verifier.generation import Generation
from services.verifier.pieces import Pieces
from services.verifier.round import Decoded, Filling, Round
from services.verifier.scheduler import ExpectedDrafts, RowCandidate, choose, expected, likeliest, worth_awaiting
from services.verifier.shapes import Shapes
from services.verifier.speed import Pace
from services.verifier.tree import Ranking, leaves, thinned
from services.verifier.turns import Mode, Turns
from shared.law.payoff import (
    MAX_WIDTH,
    NO_DRAFT,
    NO_DRAFTER,
    NO_ROLLBACK,
    OFF,
    TOO_DEAR,
    TOO_POOR,
    WORTH,
    perfect_drafts_pay,
)
from shared.law.speedup import RowCosts
from shared.model.rows import MAX_LEAVES, Rows
from shared.model.sequences import Sequences
from shared.model.target import Target
from shared.wire.messages import Speculation

# After this many rounds without a verified draft the model drafters of a request rest.
QUIET_ROUNDS: Final = 16

# A request with speculation "always" waits for its first draft at most this many plain steps, and at least this time.
PATIENCE_STEPS: Final = 10.0
PATIENCE_MS: Final = 250.0

_LEAF_WEIGHT: Final = 0.1  # of a new measurement of what a leaf costs


class Planner:
    def __init__(
        self,
        target: Target,
        sequences: Sequences,
        turns: Turns,
        eog: frozenset[int],
        min_rows: int,
        counters: Counters,
        pace: Pace,
        trees: bool,
        graph_ms: float,
    ) -> None:
        """A new graph for a decode is assumed to take `graph_ms` milliseconds."""
        self._leaves = 1 + min(target.branches, MAX_LEAVES - 1) if trees else 1  # most leaves of a request's tree
        self._leaf_ms = 0.0  # what a leaf beside the first costs
        self._shapes = Shapes(graph_ms if target.can_roll_back else 0.0)
        self._fitting = Fitting(self._shapes, self._leaves)
        self._filling = Filling(target, sequences, counters, min_rows, self._leaves)
        self._target = target
        self._turns = turns
        self._eog = eog
        self._min_rows = min_rows
        self._pace = pace
        self._pieces = Pieces(turns.whole.costs, min_rows, target.max_rows, target.unified)

    @property
    def _costs(self) -> RowCosts:
        return self._turns.costs

    def plan(self, running: Sequence[Generation], drafters: Drafters, now_ms: float, may_wait: bool) -> Round:
        """The next decode, or how long to wait for drafts first."""
        decoding = [generation for generation in running if generation.uncomputed == 1]
        prefilling = [generation for generation in running if generation.uncomputed > 1 and generation.leader is None]
        unread = sum(generation.uncomputed for generation in prefilling)
        prefill_rows = min(unread, self._pieces.rows(len(decoding))) if unread else 0
        leaf_price = self._leaf_ms * self._pace.rate
        rankings = [generation.rank(drafters, self._eog, self._leaves, leaf_price) for generation in decoding]
        candidates = [
            generation.candidate(ranking, drafters, self._target.n_ctx, now_ms)
            for generation, ranking in zip(decoding, rankings, strict=True)
        ]
        choice = choose(
            candidates,
            self._costs,
            prefill_rows,
            not self._target.unified,
            self._target.max_rows,
            may_wait and not prefilling,
            self._pace.rate,
        )
        patience = self._patience(decoding, candidates) if may_wait else 0.0
        if may_wait and (choice.wait_ms or patience):
            arrivals = [candidate.arrival for candidate in candidates if candidate.arrival is not None]
            grace_ms = max((arrival.grace_ms for arrival in arrivals), default=0.0)
            # The drafter reports its own step time, so a wrong report must not keep the target idle.
            grace_ms = min(grace_ms, self._costs(len(decoding)))
            return Round(Rows(), [], wait_ms=max(choice.wait_ms, patience) + grace_ms)
        round = Round(Rows(), [], drafting=self._drafting(running, drafters), decoding=len(decoding))
        widest = 0
        if decoding:
            fit = self._fit(decoding, rankings, candidates, choice.widths, prefill_rows)
            reasons = [
                "" if drafts else self._reason(generation, candidate)
                for generation, candidate, drafts in zip(decoding, candidates, fit.widths.drafts, strict=True)
            ]
            widest = self._filling.add_decoding(round, decoding, fit, reasons)
        if prefilling:
            order = self._pieces.order([following.need(generation, running) for generation in prefilling])
            self._filling.add_prompts(round, [prefilling[index] for index in order], self._piece(round, unread), widest)
        return round

    def _piece(self, round: Round, unread: int) -> Piece:
        """How much of the prompts the round reads."""
        budget = self._pieces.rows(round.decoding, len(round.rows))
        return self._fitting.piece(round.rows, budget, self._costs) if unread > budget else Piece(budget)

    def wanted(self, arrival: ExpectedDrafts, limit: int, others: int) -> int:
        """How many drafts are worth waiting for when a drafter starts anew, beside `others` requests; 0: none."""
        return worth_awaiting(arrival, limit, self._costs, others, self._target.max_rows, self._pace.rate)

    def branched(self, spares: int, ms: float) -> None:
        """Beside the decode, so many leaves more than one for each tree took `ms`."""
        if spares:
            self._leaf_ms += _LEAF_WEIGHT * (ms / spares - self._leaf_ms)

    def ended(self, decoded: Decoded) -> None:
        """Learn from the time that a round took."""
        round = decoded.round
        rows = len(round.rows)
        self._shapes.decoded(round.rows.shape, round.loss_ms, decoded.decode_ms, decoded.reused)
        if round.decoding:
            self._pieces.decoded(round.decoding, rows - round.prefill_rows, alone=not round.prefill_rows)
        if round.prefill_rows:
            self._pieces.observe(rows - round.prefill_rows, round.prefill_rows, decoded.decode_ms)
        elif round.entries:
            self._turns.crew(round.drafting).costs.observe(rows, decoded.decode_ms)

    def _drafting(self, running: Sequence[Generation], drafters: Drafters) -> bool:
        ahead = self._turns.mode is Mode.BESIDE
        return any(
            generation.drafted_beside(drafters, ahead and generation.quiet_rounds < QUIET_ROUNDS, QUIET_ROUNDS)
            for generation in running
        )

    def _fit(
        self,
        decoding: list[Generation],
        rankings: list[Ranking],
        candidates: list[RowCandidate],
        chosen: Sequence[int],
        prefill_rows: int,
    ) -> Fitted:
        """The scheduler's drafts, or those with which the decode keeps the last one's shape."""
        own = self._chosen(decoding, rankings, candidates, chosen, prefill_rows)
        if prefill_rows:
            return Fitted(own)
        equal, count = not self._target.unified, len(decoding)
        steps, most = self._fitting.steps(count, equal), self._fitting.leaves
        full = self._chosen(decoding, rankings, candidates, likeliest(candidates, steps, equal))
        if full.leaves > most >= count:
            each = most // count
            rankings = [thinned(ranking, one.trie.root, each) for one, ranking in zip(decoding, rankings, strict=True)]
            candidates = [
                replace(candidate, ready=tuple(ranking.reach))
                for candidate, ranking in zip(candidates, rankings, strict=True)
            ]
            full = self._chosen(decoding, rankings, candidates, likeliest(candidates, steps, equal))
        rate = max(self._pace.rate, count / self._costs(count))
        return self._fitting.fit(own, full, self._leaf_ms, self._costs, rate)

    def _chosen(
        self,
        decoding: list[Generation],
        rankings: list[Ranking],
        candidates: list[RowCandidate],
        chosen: Sequence[int],
        prefill_rows: int = 0,
    ) -> Widths:
        """What comes of the chosen widths."""
        widths = self._widths(decoding, candidates, chosen, prefill_rows)
        drafts = [ranking.nodes[:width] for ranking, width in zip(rankings, widths, strict=True)]
        rows = [max(1 + width, self._min_rows) for width in widths]
        return Widths(
            drafts,
            sum(rows) if self._target.unified else len(rows) * max(rows),
            sum(leaves(one.trie.root, nodes) for one, nodes in zip(decoding, drafts, strict=True)),
            expected(candidates, widths),
        )

    def _widths(
        self, decoding: list[Generation], candidates: list[RowCandidate], chosen: Sequence[int], prefill_rows: int
    ) -> list[int]:
        """The chosen widths, except that requests with speculation "always" get all their drafts verified."""
        widths = list(chosen)
        room = self._target.max_rows - prefill_rows - len(decoding)
        share = room // max(1, len(decoding))
        for index, (generation, candidate) in enumerate(zip(decoding, candidates, strict=True)):
            if generation.speculation is Speculation.ALWAYS:
                widths[index] = min(len(candidate.ready), candidate.limit, MAX_WIDTH, share)
            # Requests with "always" may leave less room than the scheduler counted with.
            widths[index] = min(widths[index], room if self._target.unified else share)
            room -= widths[index]
        return widths

    def _reason(self, generation: Generation, candidate: RowCandidate) -> str:
        if not self._target.can_roll_back:
            return NO_ROLLBACK
        if generation.speculation is Speculation.OFF:
            return OFF
        if not generation.sessions:
            return NO_DRAFTER
        most = min(MAX_WIDTH, self._target.max_rows - 1)
        if not perfect_drafts_pay(self._costs, most, WORTH):
            return TOO_DEAR
        resting = generation.quiet_rounds >= QUIET_ROUNDS
        return TOO_POOR if candidate.ready or resting else NO_DRAFT

    def _patience(self, decoding: list[Generation], candidates: list[RowCandidate]) -> float:
        """How long to wait for the first draft of requests with speculation "always"; 0 if none is due."""
        waits = [
            candidate.arrival.first_ms
            for generation, candidate in zip(decoding, candidates, strict=True)
            if generation.speculation is Speculation.ALWAYS and not candidate.ready and candidate.arrival is not None
        ]
        bound = max(PATIENCE_MS, PATIENCE_STEPS * self._costs(len(decoding)))
        return min(bound, max(waits, default=0.0) * 1.5)
