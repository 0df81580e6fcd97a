"""Drafts with a small model: all sessions in one decode per step, running ahead of the target without waiting.

A session draws with the request's own law, seed and offsets, so that its guesses are coupled to the target's draws.
It goes on until it is `lead` tokens ahead; when the target decides otherwise it starts anew from there.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from services.drafter.proposer import Draft, Opening, Path
from shared import sampling
from shared.drafts import burst
from shared.rows import Rows
from shared.sequences import Sequences, Slot
from shared.target import Target

# Prompt rows per step while other sessions draft; a long prompt must not silence them.
_SHARED_PREFILL_ROWS: Final = 64
_STEP_WEIGHT: Final = 0.2


class _Session:
    """`view` is what the model reads: the whole context, or its head and tail if the model's context is too small."""

    def __init__(self, opening: Opening, slot: Slot, n_ctx: int) -> None:
        self.opening = opening
        self.slot = slot
        self.path = Path(opening.prompt, opening.committed)
        self.lead = opening.lead
        self.want = 0  # tokens that a verifier waits for
        self.ended = False  # the path ends with an end-of-generation token
        self._n_ctx = n_ctx
        self.view: list[int] = []
        self.history: sampling.History | None = None
        self.look()

    def look(self) -> None:
        """Make the view anew: everything if it fits with room to draft, else the head and the tail."""
        context = [*self.opening.prompt, *self.path.output]
        if len(context) + self.lead + 1 > self._n_ctx:
            head = self._n_ctx // 4
            context = context[:head] + context[-max(head, self._n_ctx // 2 - self.lead) :]
        self.view = context
        self.recount()

    def recount(self) -> None:
        """Make the history anew if the law needs one."""
        if sampling.needs_history(self.opening.sampling):
            self.history = sampling.History(self.opening.prompt, self.path.output)

    @property
    def uncomputed(self) -> int:
        return len(self.view) - len(self.slot.tokens)

    @property
    def wants_rows(self) -> bool:
        return self.uncomputed > 0 and not self.ended and self.path.lead < self.lead


class ModelProposer:
    """Any GGUF with the target's vocabulary. `capacity` sessions at most; more are ignored."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._target = target
        self._sequences = Sequences(target)
        self._sessions: dict[str, _Session] = {}
        self._clock = clock
        self._step_s = 0.0

    @property
    def busy(self) -> bool:
        return any(session.wants_rows for session in self._sessions.values())

    @property
    def step_us(self) -> int:
        return int(self._step_s * 1e6)

    @property
    def burst(self) -> int:
        """What the session that needs its message soonest may wait for."""
        active = (session for session in self._sessions.values() if session.wants_rows)
        return min((burst(session.path.lead, session.want) for session in active), default=1)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def open(self, opening: Opening) -> None:
        self.close(opening.request_id)
        if not self._sequences.free:
            return
        n_ctx = self._target.n_ctx
        context = [*opening.prompt, *opening.committed]
        slot = self._sequences.acquire(context if len(context) < n_ctx else context[: n_ctx // 4], reuse=True)
        session = _Session(opening, slot, n_ctx)
        self._fit(session)
        self._sessions[opening.request_id] = session

    def _fit(self, session: _Session) -> None:
        """Cut the slot to the part of the view that it holds, keeping one token to compute."""
        self._sequences.keep(session.slot, session.view[:-1])

    def commit(self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0) -> bool:
        session = self._sessions.get(request_id)
        if session is None:
            return True
        session.lead, session.want = lead, want
        before = len(session.path.output)
        right = session.path.commit(base, tokens)
        if right is None:
            return False
        if right < len(session.path.output):
            del session.view[len(session.view) - (before - right) :]
            session.view += session.path.output[right:]
            session.ended = False
            session.recount()
            self._fit(session)
        if len(session.view) + 1 > self._target.n_ctx:
            session.look()
            session.ended = False
            self._fit(session)
        return True

    def close(self, request_id: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is not None:
            self._sequences.release(session.slot)

    def step(self) -> list[Draft]:
        began = self._clock()
        rows = Rows()
        drawing: list[tuple[_Session, int]] = []
        computed: list[tuple[_Session, list[int]]] = []
        active = [session for session in self._sessions.values() if session.wants_rows]
        active.sort(key=lambda session: session.uncomputed)  # those that only draft come first
        drafting = any(session.uncomputed == 1 for session in active)
        budget = _SHARED_PREFILL_ROWS if drafting else self._target.max_rows
        for session in active:
            start = len(session.slot.tokens)
            size = min(session.uncomputed, self._target.max_rows - len(rows))
            if session.uncomputed > 1:
                size = min(size, budget)
                budget -= size
            if size <= 0:
                continue
            tokens = session.view[start : start + size]
            rows.extend(tokens, start, session.slot.id)
            if size == session.uncomputed:
                rows.outputs[-1] = True
                drawing.append((session, len(rows) - 1))
            computed.append((session, tokens))
        if not rows:
            return []
        self._target.decode(rows)
        for session, tokens in computed:
            session.slot.tokens.extend(tokens)
        drafts = [self._draw(session, row) for session, row in drawing]
        if len(rows) == len(drawing):  # a step of pure drafting; prefill says nothing about the next token
            took = self._clock() - began
            self._step_s = took if not self._step_s else self._step_s + _STEP_WEIGHT * (took - self._step_s)
        return [draft for draft in drafts if draft is not None]

    def _draw(self, session: _Session, row: int) -> Draft | None:
        parameters, path = session.opening.sampling, session.path
        logits = self._target.logits(row)[: session.opening.n_vocab]
        offset = len(path.output)
        drawn = sampling.draw(sampling.law(logits, parameters, session.history), parameters.seed, offset)
        gap = drawn.gap
        if sampling.is_greedy(parameters):
            gap = sampling.greedy_gap(logits, parameters, session.history)
        if len(session.view) + 1 > self._target.n_ctx:
            session.ended = True  # no room; the next commit looks anew
            return None
        draft = Draft(session.opening.request_id, offset, path.hash(offset), (drawn.token,), (_confidence(gap),))
        path.guess(drawn.token)
        session.view.append(drawn.token)
        if session.history is not None:
            session.history.push(drawn.token)
        session.ended = drawn.token in session.opening.eog
        return draft


def _confidence(gap: float) -> float:
    """How sure the coupled draw is, from the lead of the winner over the runner-up in nats.

    Under shared noise a large lead survives small differences between drafter and target, which the winner's
    probability alone does not say. The verifier calibrates the value.
    """
    return 1.0 / (1.0 + math.exp(-min(gap, 30.0)))
