"""Drafts with a small model: one decode per step for all sessions, ahead of the target and without waiting for it.

A session draws with the request's own law, seed and offsets, so that its guesses are coupled to the target's draws. It
extends the nodes that the target most likely reaches, until it has made `lead` guesses. When the target decides
otherwise, it continues after the decided tokens.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import structlog

from services.drafter import step_costs
from services.drafter.draft_tree import DraftCandidate, DraftNode
from services.drafter.extension import Continuation
from services.drafter.proposer import Draft, Opening
from services.drafter.session import DraftSession
from shared.law import draws
from shared.law.acceptance import Acceptance
from shared.law.sampling import BrokenLogits
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.model.sequences import Sequences
from shared.model.target import Target
from shared.wire.drafts import burst
from shared.wire.messages import NOWHERE, Site

logger = structlog.get_logger()

# Most prompt rows per step while other sessions draft, so that a long prompt does not stop their drafts.
_SHARED_PREFILL_ROWS: Final = 64
_STEP_WEIGHT: Final = 0.2
MOST: Final = 8  # most nodes of one session in a step, each a row whose logits are read
RANKS: Final = 3  # most guesses per place
_LEAST_SCORE: Final = 0.02  # lowest confidence of a second or third guess that is sent


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A node and its row in the present step."""

    session: DraftSession
    node: DraftNode
    row: int
    beside: bool = False  # the row shares a step with the session's best node

    @property
    def chance(self) -> float:
        return self.session.tree.chance(self.node)


class ModelProposer:
    """Drafts with any GGUF with the target's vocabulary; `open` ignores sessions beyond the target's sequences."""

    def __init__(
        self,
        target: Target,
        costs: RowCosts | None = None,
        clock: Callable[[], float] = time.perf_counter,
        site: Site = NOWHERE,
    ) -> None:
        """`costs` are a step's by rows: if rows are cheap, a session draws several nodes per step. None: always one.

        `site` has the numbers of threads to compute with, while a target beside it rests and while it does not.
        """
        self._target = target
        self._costs = costs
        self._sequences = Sequences(target)
        self._sessions: dict[str, DraftSession] = {}
        self._acceptance = Acceptance()  # of this drafter's guesses by all targets
        self._clock = clock
        self._site = site
        self._threads = 0  # of the last step
        self._step_s: dict[int, float] = {}  # by number of threads

    @property
    def busy(self) -> bool:
        return any(session.best() for session in self._sessions.values())

    @property
    def step_us(self) -> int:
        return int(self._step_s.get(self._threads, 0.0) * 1e6)

    @property
    def burst(self) -> int:
        """The steps after which the session that needs its message soonest gets one."""
        active = (session for session in self._sessions.values() if session.best())
        return min((burst(session.tree.ahead, session.want) for session in active), default=1)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def open(self, opening: Opening) -> None:
        self.close(opening.request_id)
        if not self._sequences.free:
            return
        n_ctx = self._target.n_ctx
        context = [*opening.prompt, *opening.committed]
        slot = self._sequences.acquire(context if len(context) < n_ctx else context[: n_ctx // 4], opening.share)
        self._sessions[opening.request_id] = DraftSession(opening, slot, self._sequences, self._target)

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        session = self._sessions.get(request_id)
        if session is None:
            return True
        before = session.tree.root
        passed = session.commit(base, tokens, lead, want, worth)
        if passed is None:
            return False
        for node in passed:
            self._learn(before, node.token)
            before = node
        return True

    def _learn(self, node: DraftNode, decided: int) -> None:
        for rank, child in enumerate(node.children):
            self._acceptance.learn(child.score, child.token == decided, rank)

    def close(self, request_id: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is not None:
            session.close()

    def step(self) -> list[Draft]:
        began = self._clock()
        rows = Rows()
        drawing = self._fill(rows)
        if not rows:
            return []
        self._staff(drawing)
        self._target.decode(rows)
        drafts = [self._draw(drawn) for drawn in drawing]
        for session in {drawn.session for drawn in drawing if drawn.session.broken}:
            # Everything after it would be broken too, so the request goes on without this drafter.
            logger.warning("session_broken", request=session.opening.request_id)
            self.close(session.opening.request_id)
        if len(rows) == len(drawing):  # only steps without prefill say how long the next token takes
            took = self._clock() - began
            before = self._step_s.get(self._threads, took)
            self._step_s[self._threads] = before + _STEP_WEIGHT * (took - before)
        resting = {name for name, session in self._sessions.items() if not session.best()}
        return [replace(draft, rests=draft.request_id in resting) for draft in drafts if draft.tokens]

    def _staff(self, drawing: list[_Drawing]) -> None:
        """Compute with all cores if a verifier only waits for what is drawn, else with those beside its target."""
        awaited = any(drawn.session.awaited for drawn in drawing)
        threads = self._site.most if awaited else self._site.threads
        if threads != self._threads:
            self._target.use_threads(threads)
            self._threads = threads

    def _fill(self, rows: Rows) -> list[_Drawing]:
        """Add the next rows of all sessions; returns the nodes to draw."""
        drawing: list[_Drawing] = []
        others: list[_Drawing] = []
        active = [
            (session, nodes)
            for session in self._sessions.values()
            if (nodes := session.best(MOST if self._costs else 1))
        ]
        active.sort(key=lambda pair: pair[0].uncomputed)  # sessions that only draft come first
        budget = _SHARED_PREFILL_ROWS if active and active[0][0].uncomputed == 1 else self._target.max_rows
        for session, (node, *more) in active:
            room = self._target.max_rows - len(rows)
            if room <= 0:
                break
            if node.parent is not None:
                drawing.append(_Drawing(session, node, _add(rows, session, node)))
                others += (_Drawing(session, other, -1, beside=True) for other in more)
                continue
            tokens = session.read(room if session.uncomputed == 1 else min(room, budget))
            if not tokens:
                continue
            budget -= len(tokens)
            ends = len(session.slot.tokens) == len(session.view)
            rows.extend(tokens, len(session.slot.tokens) - len(tokens), session.slot.id, output_last=ends)
            if ends:
                drawing.append(_Drawing(session, node, len(rows) - 1))
        return drawing + self._beside(rows, drawing, others)

    def _beside(self, rows: Rows, drawing: list[_Drawing], others: list[_Drawing]) -> list[_Drawing]:
        """Add rows for those of `others` that give more useful guesses per time."""
        if self._costs is None or not others:
            return []
        others = sorted(others, key=lambda drawn: -drawn.chance)[: self._target.max_rows - len(rows)]
        expected = sum(drawn.chance for drawn in drawing)
        count = step_costs.worth(expected, [drawn.chance for drawn in others], len(rows), self._costs)
        return [replace(drawn, row=_add(rows, drawn.session, drawn.node)) for drawn in others[:count]]

    def _draw(self, drawn: _Drawing) -> Draft:
        session, node = drawn.session, drawn.node
        logits = self._target.logits(drawn.row)[: session.opening.n_vocab]
        path = session.path(node)
        history = session.history
        if history is not None:
            for token in path:
                history.push(token)
        try:
            found = draws.ranked(logits, session.opening.sampling, history, node.offset + 1, RANKS)
        except BrokenLogits:
            session.spoil()
            found = []
        if history is not None:
            for token in path:
                history.pop(token)
        candidates = [
            DraftCandidate(token, score, self._acceptance.estimate(score, rank))
            for rank, (token, score) in enumerate(confidences(found))
            if not rank or score >= _LEAST_SCORE
        ]
        session.tree.draw(node, candidates, drawn.beside)
        copy = self._copy(session, node, path)
        own, tail = len(candidates), len(copy.tokens)
        return Draft(
            request_id=session.opening.request_id,
            base=node.offset + 1,
            prefix_hash=node.hash,
            tokens=(*(candidate.token for candidate in candidates), *copy.tokens),
            scores=(*(candidate.score for candidate in candidates), *copy.scores),
            parents=(*((-1,) * own), *((0, *range(own, own + tail - 1)) if tail else ())) if own > 1 else (),
            copied=tail,
        )

    @staticmethod
    def _copy(session: DraftSession, node: DraftNode, path: list[int]) -> Continuation:
        """The tokens copied after the likeliest child of `node`, the last of `path`."""
        if not node.children:
            return Continuation()
        child, tree = node.children[0], session.tree
        room = session.lead - (child.offset - tree.root.offset)
        return session.extension.behind(child, [*path, child.token], tree.chance(child), room)


def _add(rows: Rows, session: DraftSession, node: DraftNode) -> int:
    position, sequence = session.row(node)
    return rows.add(node.token, position, (sequence,), True)


def confidences(ranked: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Tokens with the confidence in each, from tokens with their scores in nats, best first.

    A token's confidence is its share of e^score among the tokens ranked no lower; the first token's is its share among
    the first two. With shared noise a guess survives small differences between drafter and target if its score is far
    above its rival's, which the token's probability alone does not show. The verifier calibrates the value by rank.
    """
    if not ranked:
        return []
    best = ranked[0][1]
    weights = [math.exp(max(score - best, -30.0)) for _, score in ranked]
    totals = list(accumulate(weights))
    return [
        (token, weight / totals[min(max(rank, 1), len(totals) - 1)])
        for rank, ((token, _), weight) in enumerate(zip(ranked, weights, strict=True))
    ]
