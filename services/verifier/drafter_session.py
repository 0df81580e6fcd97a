"""One drafter's work on a request: what was asked of it, and when its next drafts should be here. No I/O."""

import math
from dataclasses import dataclass

from services.verifier.drafters import FIRST_HOP_MS, Drafter
from shared.wire.messages import Proposal


@dataclass(slots=True)
class DrafterSession:
    """One drafter's work on this request. `expected_ms` is when its next draft should be here (monotonic clock)."""

    drafter: str
    expected_ms: float
    hop_ms: float = FIRST_HOP_MS  # a message to it and back, without its steps
    jitter_ms: float = FIRST_HOP_MS  # the average deviation of `hop_ms`
    batch: int = 1  # tokens that its next message should bring
    want: int = 0  # tokens that we told it we would wait for
    asked_ms: float | None = None  # when it was first asked to start anew; None once it has answered
    latest_ms: float = 0.0  # when it was last asked to start anew
    opened_round: int = 0  # the request's rounds when it began
    told: bool = False  # it has been asked to draft for the request
    heard: bool = False  # it has sent a proposal, so it has read the prompt
    takes_turns: bool = False  # it drafts only what the verifier waits for, and rests meanwhile

    def begin(self) -> None:
        """It is asked to draft, and reads the prompt."""
        self.told = True

    def decided(self, takes_turns: bool) -> None:
        """A round ended, so nothing is awaited any more; `takes_turns`: it drafts in its turn alone from now on."""
        self.want, self.takes_turns = 0, takes_turns

    def ask(self, want: int, step_ms: float, now_ms: float) -> None:
        """Its guesses were wrong, so it starts anew; the verifier waits for `want` tokens.

        A drafter that already owes an answer keeps its expected time. Otherwise rounds would wait again and again for a
        drafter that has fallen silent.
        """
        self.want = want
        self.batch = max(1, want)
        self.latest_ms = now_ms
        if self.asked_ms is None:
            self.asked_ms = now_ms
            self.expected_ms = now_ms + self.hop_ms + self.batch * step_ms

    def goes_on(self, step_ms: float, now_ms: float) -> None:
        """Its guesses were right. If it was resting, because it had made all its guesses, it draws again now."""
        if self.expected_ms < now_ms or math.isinf(self.expected_ms):
            self.batch = 1
            self.expected_ms = now_ms + self.hop_ms + step_ms

    def take_turn(self, want: int, step_ms: float, now_ms: float) -> None:
        """It is the drafter's turn to make `want` guesses, and then it rests; with 0 it rests at once."""
        if want:
            self.ask(want, step_ms, now_ms)
        elif self.asked_ms is None:
            self.expected_ms = math.inf

    def answered(self, attached: int | None, proposal: Proposal, drafter: Drafter, offset: int, now_ms: float) -> None:
        """A proposal came with `attached` useful tokens (None: it was stale). Predicts when the next one comes."""
        self.heard = True
        # While nothing is awaited of it, it has fewer cores than in its turn.
        tells = self.want or not self.takes_turns
        step_ms = drafter.observe_step(proposal.step_us) if tells else drafter.step_ms
        if attached is None:
            drafter.count(stale=1)
            if self.asked_ms is not None:  # it sent this before it received our latest commit
                self.asked_ms = self.latest_ms
                self.expected_ms = self.latest_ms + self.hop_ms + self.batch * step_ms
            return
        behind = 0
        # Copies take no steps, so they say nothing about the hop.
        if attached and self.asked_ms is not None and proposal.step_us and not proposal.copied:
            steps = min(self.batch, len(set(proposal.parents)) or len(proposal.tokens))
            error_ms = min(1000.0, max(0.1, now_ms - self.asked_ms - steps * step_ms)) - self.hop_ms
            self.hop_ms += 0.2 * error_ms
            self.jitter_ms += 0.2 * (abs(error_ms) - self.jitter_ms)
            drafter.observe_hop(self.hop_ms)
        if not attached:
            behind = max(0, offset - proposal.base - len(proposal.tokens))
        self.asked_ms = None
        self.batch = max(1, proposal.batch)
        rests = self.takes_turns and not proposal.batch
        self.expected_ms = math.inf if rests else now_ms + max(self.batch, behind) * step_ms
