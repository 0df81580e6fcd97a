"""One request while a verifier holds it: what is committed, what is guessed, who guesses. No I/O, no model."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from services.verifier.constraint import Constraint
from services.verifier.contributions import Contributions
from services.verifier.drafter_session import DrafterSession
from services.verifier.drafters import Drafters
from services.verifier.scheduler import ExpectedDrafts, RowCandidate
from services.verifier.tree import Ranking, rank
from services.verifier.trie import Trie, TrieNode
from services.verifier.walk import ANYTHING, Rule
from shared.law.acceptance import COPIED
from shared.law.history import History
from shared.law.payoff import MAX_WIDTH, PREFILL, UNDECODED
from shared.law.sampling import needs_history
from shared.model.sequences import Slot
from shared.wire.jobs import Claim
from shared.wire.messages import Job, Proposal, RequestStatus, Speculation


@dataclass(frozen=True, slots=True)
class Leader:
    """An older request that reads the first `length` tokens of this one's prompt too."""

    generation: "Generation"
    length: int


@dataclass(slots=True, eq=False)
class Generation:
    """One request. Only this class writes its fields.

    `context` is prompt and output. The slot's tokens are the part of it whose keys and values are in the cache.
    """

    claim: Claim
    slot: Slot
    trie: Trie
    context: list[int]
    speculation: Speculation
    cached: int
    history: History | None
    constraint: Constraint | None = None
    sessions: dict[str, DrafterSession] = field(default_factory=dict)
    contributions: Contributions = field(default_factory=Contributions)
    rounds: int = 0  # rounds that gave it tokens
    committed_now: int = 0  # tokens committed by this claim
    reason: str = UNDECODED  # why the last round verified no drafts of it; empty if it did
    started_ms: float = 0.0  # on the engine's clock
    first: tuple[float, int] | None = None  # when its first tokens came, and how many
    heard: bool = False  # a drafter has sent a proposal, so rounds without drafts count as quiet
    quiet_rounds: int = 0  # rounds in a row without a verified draft
    deadline_ms: float = math.inf  # on the engine's clock
    leader: Leader | None = None  # it reads nothing before this one has read their common prefix
    lost: bool = False  # cancelled, taken over or gone: its verifier stops and writes nothing more

    @classmethod
    def start(
        cls,
        claim: Claim,
        output: list[int],
        slot: Slot,
        speculation: Speculation,
        now_ms: float,
        constraint: Constraint | None = None,
    ) -> "Generation":
        job = claim.job
        trie = Trie(job.prompt, output, rule=constraint.verdict) if constraint else Trie(job.prompt, output)
        return cls(
            claim=claim,
            slot=slot,
            trie=trie,
            context=[*job.prompt, *output],
            speculation=speculation,
            cached=len(slot.tokens),
            deadline_ms=now_ms + claim.remaining_ms,
            started_ms=now_ms,
            history=History(job.prompt, output) if needs_history(job.sampling) else None,
            constraint=constraint,
        )

    @property
    def job(self) -> Job:
        return self.claim.job

    @property
    def offset(self) -> int:
        return self.trie.offset

    @property
    def uncomputed(self) -> int:
        """Context tokens without keys and values; one while decoding, more while prefilling."""
        return len(self.context) - len(self.slot.tokens)

    @property
    def rule(self) -> Rule:
        """What may come next, positioned at the committed prefix."""
        if self.constraint is None:
            return ANYTHING
        self.constraint.stand()
        return self.constraint

    def room(self, n_ctx: int) -> int:
        """Output tokens that may still be committed."""
        return min(self.job.max_tokens - self.offset, n_ctx - len(self.context))

    def open_session(self, name: str, now_ms: float) -> None:
        """Start a session with a drafter. It reads the prompt first, and no round waits for its first proposal."""
        self.sessions[name] = DrafterSession(name, expected_ms=now_ms, opened_round=self.rounds)
        self.heard, self.quiet_rounds = False, 0
        self.contributions.restart()

    def close_session(self, name: str) -> None:
        del self.sessions[name]
        self.contributions.restart()

    def propose(self, proposal: Proposal, drafters: Drafters, n_vocab: int, now_ms: float) -> bool:
        """Add a proposal to the trie, without what does not fit and without ids at or above `n_vocab`.

        Returns False if the proposal was stale.
        """
        session = self.sessions.get(proposal.drafter)
        if session is None or proposal.drafter not in drafters:
            return True
        drafter = drafters[proposal.drafter]
        self.heard = True
        self.contributions.heard(proposal.drafter)
        tokens = list(takewhile(lambda token: token < n_vocab, proposal.tokens))
        attached = self.trie.attach(
            proposal.base,
            proposal.prefix_hash,
            tokens,
            proposal.scores[: len(tokens)],
            proposal.drafter,
            proposal.parents[: len(tokens)],
            max(0, proposal.copied - (len(proposal.tokens) - len(tokens))),
        )
        session.answered(attached, proposal, drafter, self.offset, now_ms)
        return attached is not None

    def rank(self, drafters: Drafters, eog: frozenset[int], leaves: int, leaf_price: float) -> Ranking:
        """The guesses, best first. Tokens that the constraint forces after the likeliest path are added to the trie."""
        while True:
            ranking = rank(self.trie.root, lambda node: self.chance(node, drafters), eog, MAX_WIDTH, leaves, leaf_price)
            if self.constraint is None or self.speculation is Speculation.OFF or len(ranking.nodes) >= MAX_WIDTH:
                return ranking
            if not self.trie.force(ranking.tip, self.constraint.forced_behind(ranking.tip)):
                return ranking

    @staticmethod
    def chance(node: TrieNode, drafters: Drafters) -> float:
        """Calibrated acceptance of a node: the highest estimate among the drafters that guessed it."""
        if node.forced:
            return 1.0
        best = 0.0
        for name, guess in node.guesses.items():
            if name in drafters:
                best = max(best, drafters[name].acceptance.estimate(*guess))
        return best

    def arrival(self, ranking: Ranking, drafters: Drafters, now_ms: float) -> ExpectedDrafts | None:
        """When the next draft after the likeliest path should come, or None if no drafter is working on one."""
        best: ExpectedDrafts | None = None
        for session in self.sessions.values():
            if session.drafter not in drafters or not drafters[session.drafter].step_ms:
                continue
            last = ranking.tip.guesses.get(session.drafter)
            if ranking.nodes and (last is None or last.rank == COPIED):
                continue  # this drafter is drafting elsewhere, or has not caught up
            drafter = drafters[session.drafter]
            if now_ms > session.expected_ms + 2 * drafter.step_ms + 10.0:
                continue  # overdue, so it is silent or gone
            first_ms = max(0.05, session.expected_ms - now_ms)
            if math.isinf(first_ms):
                continue  # it rests
            if best is None or first_ms < best.first_ms:
                # A drafter finishes its running step before it starts anew, so its answer may be one step late.
                grace_ms = drafter.step_ms + 2 * session.jitter_ms
                best = ExpectedDrafts(first_ms, drafter.step_ms, drafter.acceptance.mean, session.batch, grace_ms)
        return best

    def candidate(self, ranking: Ranking, drafters: Drafters, n_ctx: int, now_ms: float) -> RowCandidate:
        """This request as the scheduler sees it."""
        limit = 0 if self.speculation is Speculation.OFF else max(0, self.room(n_ctx) - 1)
        arrival = None if ranking.ended or not limit else self.arrival(ranking, drafters, now_ms)
        return RowCandidate(ready=tuple(ranking.reach), limit=limit, arrival=arrival, tip=ranking.tip_reach)

    def advance(
        self,
        tokens: list[int],
        drafters: Drafters,
        now_ms: float,
        wanted: Callable[[ExpectedDrafts, int], int],
        turn: str | None = None,
    ) -> None:
        """Commit `tokens`, which the target decided, and predict when each drafter reacts to them.

        `wanted` returns how many drafts are worth waiting for, given when they would come and how many there may be.
        Drafters on the target's cores take turns with it if `turn` is not None: it names the one that drafts, "" for
        none.
        """
        self.trie.advance(tokens)
        if self.constraint is not None:
            self.constraint.commit(tokens)
        self.context.extend(tokens)
        self.committed_now += len(tokens)
        if self.first is None:
            self.first = now_ms, len(tokens)
        alive = {name for child in self.trie.root.children.values() for name in child.guesses}
        for session in self.sessions.values():
            known = session.drafter in drafters
            in_turns = turn is not None and known and drafters[session.drafter].contends
            session.decided(in_turns)
            if not known:
                continue
            drafter = drafters[session.drafter]
            drafter.count(asked=1)
            asked = True
            if in_turns:  # guesses that are left are used first
                asked = session.drafter == turn and session.heard and session.drafter not in alive
            elif session.drafter in alive:
                session.goes_on(drafter.step_ms, now_ms)
                continue
            want = 0
            if asked and drafter.step_ms and self.speculation is not Speculation.OFF:
                first = ExpectedDrafts(session.hop_ms + drafter.step_ms, drafter.step_ms, drafter.acceptance.mean)
                want = wanted(first, self.job.max_tokens - self.offset - 1)
            if in_turns:
                session.take_turn(want, drafter.step_ms, now_ms)
            else:
                session.ask(want, drafter.step_ms, now_ms)

    def drafted_beside(self, drafters: Drafters, ahead: bool, rounds: int) -> bool:
        """Whether a drafter on the target's cores works for this request now; `ahead`: it does not wait for its turn.

        One that has not answered is reading the prompt, but for no longer than `rounds` rounds.
        """
        return any(
            drafters[name].contends
            and session.told
            and (ahead or (not session.heard and self.rounds - session.opened_round < rounds))
            for name, session in self.sessions.items()
            if name in drafters
        )

    def follow(self, leader: Leader | None) -> None:
        """Wait for `leader` to read; None: read from here on, after what the slot holds by now."""
        self.leader = leader
        self.cached = len(self.slot.tokens)

    def piece_read(self) -> None:
        """A decode read a part of the prompt, but not the end of it."""
        self.reason = PREFILL

    def round_ended(self, reason: str, guessed: bool) -> None:
        """A round gave tokens. `reason` says why it verified no drafts; `guessed`: it verified a drafter's guess."""
        self.rounds += 1
        self.reason = reason
        self.quiet_rounds = 0 if guessed else self.quiet_rounds + self.heard

    def lose(self) -> None:
        """Stop: another process has ended, cancelled or taken over the request."""
        self.lost = True

    def status(self, now_ms: float) -> RequestStatus:
        """The request as `draftmesh status` shows it, at `now_ms` of the engine's clock."""
        first_ms, at_once = self.first or (now_ms, 0)
        decoding_s = (now_ms - first_ms) / 1000
        return RequestStatus(
            request_id=self.job.request_id,
            offset=self.offset,
            tokens_per_round=self.committed_now / self.rounds if self.rounds else 0.0,
            drafters=tuple(self.sessions),
            reason=self.reason,
            tokens_per_second=(self.committed_now - at_once) / decoding_s if decoding_s > 0 else 0.0,
            age_ms=max(0, int(now_ms - self.started_ms)),
        )
