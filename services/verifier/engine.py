"""Runs rounds over all requests of one target: plan, decode, walk, finish. No I/O; one thread at a time.

Every token that leaves here was drawn by the target from logits of its own row, so drafts, neighbours and timing
change how many tokens a round gives and never which.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from services.verifier.assignment import Assignment, Pairing
from services.verifier.constraint import DEAD_END, Constraint
from services.verifier.counters import Counters
from services.verifier.drafters import Drafters
from services.verifier.generation import Generation
from services.verifier.pace import Pace
from services.verifier.round import QUIET_ROUNDS, Decoded, Planner, Round, RoundEntry
from services.verifier.scheduler import ExpectedDrafts
from services.verifier.trie import TrieNode
from services.verifier.walk import Walk, walk
from shared.law.payoff import MAX_WIDTH
from shared.law.speedup import RowCosts
from shared.model.sequences import Sequences
from shared.model.target import Target
from shared.wire.jobs import Claim
from shared.wire.messages import Chunk, Finish, Job, Proposal, Speculation

# How often and how long resting drafters try again: their guesses are judged without rows, so a probe costs the
# verifier nothing.
# While the prompt is read: no more than the first round can use, as drafting slows the target on the same memory.
FIRST_LEAD: Final = 20
LEAD: Final = 2 * MAX_WIDTH  # guesses ahead, this round's and the next's: a bound, as seldom so many are worth it
GRAMMAR: Final = "grammar"  # whom tokens are credited to that a constraint left no choice about
PROBE_EVERY: Final = 256
PROBE_ROUNDS: Final = 8


def _tokens(job: Job, output: Sequence[int]) -> Iterator[Sequence[int]]:
    """All token ids that a request brings along."""
    yield from (job.prompt, output, [token for token, _ in job.sampling.logit_bias])
    if job.thinking is not None:
        yield from (job.thinking.start, job.thinking.end, job.thinking.close)


@dataclass(slots=True)
class Gain:
    """What a round gave one request: a chunk to commit at `base`, or none while it prefills."""

    generation: Generation
    base: int
    chunk: Chunk | None


class Engine:
    """All running requests of one target."""

    def __init__(
        self,
        target: Target,
        costs: RowCosts,
        eog: Sequence[int],
        *,
        min_rows: int = 1,
        speculation: Speculation = Speculation.AUTO,
        trees: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`min_rows` 2 keeps float weights bit-exact: no sequence ever enters a decode with a single row.

        Without `trees`, and where the target has no branches, the rows of a request are one chain.
        """
        self.target = target
        self.costs = costs
        self.eog = frozenset(eog)
        self.drafters = Drafters()
        self.assignment = Assignment(self.drafters)
        self.sequences = Sequences(target)
        self.running: list[Generation] = []
        self.counters = Counters()
        self._pace = Pace()
        self._planner = Planner(target, self.sequences, costs, self.eog, min_rows, self.counters, self._pace, trees)
        self._speculation = speculation
        self._clock = clock

    # ------------------------------------------------------------ requests

    def admit(self, claim: Claim, output: list[int], constraint: Constraint | None = None) -> Generation:
        """Take a claimed request in; `output` are the tokens that earlier claims committed, and what the constraint
        has stepped over. Needs a free slot."""
        job = claim.job
        slot = self.sequences.acquire([*job.prompt, *output], job.cache_prompt)
        speculation = job.speculation
        if self._speculation is Speculation.OFF or not self.target.can_roll_back:
            speculation = Speculation.OFF
        elif speculation is Speculation.AUTO:
            speculation = self._speculation
        generation = Generation.start(claim, output, slot, speculation, self._clock() * 1000, constraint)
        self.running.append(generation)
        self.counters.add("requests", 1)
        self.counters.add("takeovers", claim.epoch > 1)
        self.counters.add("prompt_tokens", len(job.prompt))
        # A request that was taken over may find more than its prompt: the answer's beginning.
        self.counters.add("cached_tokens", min(generation.cached, len(job.prompt)))
        return generation

    def drop(self, generation: Generation) -> None:
        """Let a request go; its computed prefix stays resident."""
        self.running.remove(generation)
        self.sequences.release(generation.slot)
        self.assignment.request_ended(generation)

    def misfit(self, claim: Claim, output: list[int]) -> str:
        """Why this target cannot serve a claimed request, for its client; empty if it can."""
        if len(claim.job.prompt) + len(output) >= self.target.n_ctx:
            return f"The prompt does not fit the verifier's context of {self.target.n_ctx} tokens."
        if max(map(max, filter(None, _tokens(claim.job, output)))) >= self.target.n_vocab:
            return "The request was made for another vocabulary than the verifier's."
        return ""

    def expired(self) -> list[Generation]:
        """Running requests whose deadline has passed."""
        now_ms = self._clock() * 1000
        return [generation for generation in self.running if now_ms > generation.deadline_ms and not generation.lost]

    # ------------------------------------------------------------ drafters

    def reassign(self) -> tuple[list[Pairing], list[Pairing]]:
        """Assign drafters to all requests anew; returns which sessions to open and which to close."""
        return self.assignment.reassign(self.running, self._clock() * 1000)

    def take(self, proposals: Sequence[Proposal], now_ms: float) -> None:
        """Take proposals of running requests that arrived at `now_ms` into their tries."""
        running = {generation.job.request_id: generation for generation in self.running}
        for proposal in proposals:
            generation = running.get(proposal.request_id)
            if generation is not None and generation.claim.epoch == proposal.epoch:
                fresh = generation.propose(proposal, self.drafters, self.target.n_vocab, now_ms)
                self.counters.add("stale_proposals", not fresh)

    def lead(self, generation: Generation, name: str) -> int:
        """How many guesses a drafter should keep ahead; none for one with a model while they do not pay."""
        quiet = generation.quiet_rounds
        insists = generation.speculation is Speculation.ALWAYS
        if insists or quiet < QUIET_ROUNDS or name not in self.drafters or self.drafters[name].card.kind != "model":
            return LEAD
        return LEAD if quiet % PROBE_EVERY < PROBE_ROUNDS else 0

    def plan(self, may_wait: bool = True) -> Round:
        """The next decode, or how long to wait for drafts first."""
        return self._planner.plan(self.running, self.drafters, self._clock() * 1000, may_wait)

    # ------------------------------------------------------------ decode and walk: in the target's thread

    def run(self, round: Round) -> Decoded:
        """Decode the rows, walk every request that has logits, and drop from the cache what was not accepted."""
        for entry in round.entries:
            self._branch(entry)
        started = self._clock()
        self.target.decode(round.rows)
        decode_ms = (self._clock() - started) * 1000
        return Decoded(round, decode_ms, tuple(self._walk(entry) for entry in round.entries))

    def _walk(self, entry: RoundEntry) -> Walk | None:
        """Draw from the logits of a request's rows, and keep in the cache what was accepted."""
        generation, found = entry.generation, None
        if entry.rows:
            job = generation.job
            found = walk(
                generation.trie.root,
                entry.rows,
                self.target.logits,
                job.sampling,
                generation.history,
                self.eog,
                generation.room(self.target.n_ctx),
                job.top_logprobs,
                generation.rule,
            )
        path = found.path if found else []
        self._join(entry, path)
        self.sequences.accept(generation.slot, [*entry.computed, *(node.token for node in path)])
        return found

    def _branch(self, entry: RoundEntry) -> None:
        """Give every leaf of a tree the past of its request."""
        slot = entry.generation.slot
        for leaf in entry.leaves:
            if leaf != slot.id:
                self.target.copy(slot.id, leaf, len(slot.tokens))

    def _join(self, entry: RoundEntry, path: Sequence[TrieNode]) -> None:
        """Bring what was accepted into the request's own sequence and empty the others."""
        slot = entry.generation.slot
        if entry.sequences and path and slot.id not in entry.sequences[path[-1]]:
            start = len(slot.tokens)
            self.target.copy(entry.sequences[path[-1]][0], slot.id, start + 1 + len(path), start)
        for leaf in entry.leaves:
            if leaf != slot.id:
                self.target.truncate(leaf, 0)

    # ------------------------------------------------------------ finish

    def finish(self, decoded: Decoded) -> list[Gain]:
        """Turn a finished round into chunks, verdicts and statistics."""
        round, now_ms = decoded.round, self._clock() * 1000
        self.counters.add("decodes", 1)
        self.counters.add("decode_us", int(decoded.decode_ms * 1000))
        self._planner.ended(decoded)
        gains = [self._gain(*one, now_ms) for one in zip(round.entries, decoded.walks, strict=True)]
        if round.prefill_rows or any(gain.chunk is None or gain.chunk.finish is not Finish.NONE for gain in gains):
            self._pace.interrupted()
        else:
            self._pace.decoded(sum(len(gain.chunk.tokens) for gain in gains if gain.chunk is not None), now_ms)
        return gains

    def _gain(self, entry: RoundEntry, result: Walk | None, now_ms: float) -> Gain:
        generation = entry.generation
        base = generation.offset
        if result is None:
            return Gain(generation, base, None)
        self._judge(entry, result)
        sources = [self._source(node) for node in result.path]
        sources += [""] * (len(result.tokens) - len(sources))
        tried = self._tried(entry, result)
        generation.advance(result.tokens, self.drafters, now_ms, self._wanted)
        width = len(entry.drafts)
        generation.rounds += 1
        self.assignment.round_ended(generation)
        guessed = any(not node.forced for node in entry.drafts)
        generation.quiet_rounds = 0 if guessed else generation.quiet_rounds + generation.heard
        self.counters.add("rounds", 1)
        self.counters.add("tokens", len(result.tokens))
        finish = Finish.NONE
        if result.stuck:
            finish = Finish.ERROR
        elif result.ended or result.complete:
            finish = Finish.STOP
        elif generation.room(self.target.n_ctx) <= 0:
            finish = Finish.LENGTH
        if finish is Finish.NONE:
            self.counters.start(width, tried, len(result.path), bool(generation.trie.root.children))
        chunk = Chunk(
            tokens=tuple(result.tokens),
            sources=tuple(sources) if any(sources) else (),
            drafted=width,
            accepted=len(result.path),
            reason=generation.reason,
            logprobs=tuple(result.logprobs),
            finish=finish,
            detail=DEAD_END if result.stuck else "",
            cached=generation.cached if generation.first_chunk else 0,
            tried=tried,
        )
        generation.first_chunk = False
        return Gain(generation, base, chunk)

    def _wanted(self, arrival: ExpectedDrafts, limit: int) -> int:
        return self._planner.wanted(arrival, limit, others=len(self.running) - 1)

    @staticmethod
    def _tried(entry: RoundEntry, result: Walk) -> int:
        """At how many offsets a draft was compared with the target's draw."""
        last = result.path[-1] if result.path else entry.generation.trie.root
        return len(result.path) + any(child in entry.rows for child in last.children.values())

    def _judge(self, entry: RoundEntry, result: Walk) -> None:
        """Tell every drafter what became of its guesses, verified or not, and count the verified ones.

        A guess that got no row is judged too where the target drew at its place: so a drafter that does not pay now
        is known to be worth it again without spending rows on probes. Where there was no choice nobody is judged.
        """
        nodes = [entry.generation.trie.root, *result.path]
        for node, drawn in zip(nodes, result.drawn, strict=False):
            for child in node.children.values():
                for name, guess in child.guesses.items():
                    if name in self.drafters and not child.forced:
                        self.drafters[name].acceptance.learn(guess.score, child.token == drawn, guess.rank)
        if not entry.drafts:
            return
        self.counters.add("drafts", 1)
        self.counters.add("draft_tokens", len(entry.drafts))
        self.counters.add("accepted_tokens", len(result.path))
        for position in range(len(result.path)):
            self.counters.accepted_per_position[position] += 1
        sessions = entry.generation.sessions.keys()
        accepted = [node for node in result.path if not node.forced]
        for name in entry.generation.contributions.observe([node.guesses.keys() & sessions for node in accepted]):
            if name in self.drafters:
                self.drafters[name].was_needed()
        drafts = [node for node in entry.drafts if not node.forced]
        for name in {name for node in drafts for name in node.guesses if name in self.drafters}:
            counts = (sum(name in node.guesses for node in nodes) for nodes in (drafts, accepted))
            self.drafters[name].judged(*counts)

    def _source(self, node: TrieNode) -> str:
        """Whom an accepted token is credited to: the grammar that forced it, or the drafter whose confidence in it was
        worth most."""
        if node.forced:
            return GRAMMAR
        known = [name for name in node.guesses if name in self.drafters]
        if not known:
            return next(iter(node.guesses), "")
        return max(known, key=lambda name: self.drafters[name].acceptance.estimate(*node.guesses[name]))
