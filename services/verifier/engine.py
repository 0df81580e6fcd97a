"""Runs rounds over all requests of one target: plan, decode, walk, finish. No I/O; one thread at a time.

The target draws every token from the logits of that token's own row. So drafts, neighbours and timing change how many
tokens a round gives, but never which.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from services.verifier import following
from services.verifier.assignment import Assignment, Pairing
from services.verifier.constraint import Constraint
from services.verifier.counters import Counters
from services.verifier.drafters import Drafters
from services.verifier.failures import DETAIL, UndoneError
from services.verifier.generation import Generation
from services.verifier.planner import QUIET_ROUNDS, Planner
from services.verifier.round import Decoded, Round, RoundEntry
from services.verifier.scheduler import ExpectedDrafts
from services.verifier.sharing import PROBE_EVERY, PROBE_ROUNDS, Sharing
from services.verifier.speed import Pace
from services.verifier.trie import TrieNode
from services.verifier.turns import Crew, Turns
from services.verifier.walk import BROKEN, Walk
from services.verifier.walkers import Walkers
from shared.law.payoff import MAX_WIDTH
from shared.law.speedup import RowCosts
from shared.model.rows import LlamaError
from shared.model.saved_states import SavedStates
from shared.model.sequences import LeafEnd, Sequences
from shared.model.target import Target
from shared.wire.jobs import Claim
from shared.wire.messages import NOWHERE, Chunk, Finish, Job, Proposal, Site, Speculation

# Guesses that a drafter makes while the target reads the prompt: only what the first round can use, because drafting
# slows a target on the same device.
FIRST_LEAD: Final = 20
LEAD: Final = 2 * MAX_WIDTH  # most guesses ahead: for this round and the next
GRAMMAR: Final = "grammar"  # the source of tokens that a constraint forced


def _tokens(job: Job, output: Sequence[int]) -> Iterator[Sequence[int]]:
    """All token ids in a request."""
    yield from (job.prompt, output, [token for token, _ in job.sampling.logit_bias], job.sampling.banned)
    if job.thinking is not None:
        yield from (job.thinking.start, job.thinking.end, job.thinking.close)


@dataclass(slots=True)
class Gain:
    """What a round gave one request: a chunk to commit at `base`, or None while its prompt is unfinished."""

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
        graph_ms: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        site: Site = NOWHERE,
        part: Crew | None = None,
        cache_ram: int = 0,
    ) -> None:
        """The target is at `site`; `part` is who computes there beside a drafter, if that is not all of it. Ended
        conversations may take `cache_ram` bytes of host memory beside the target's own cache.

        With `min_rows` 2 no sequence has a single row in a decode, which keeps float weights bit-exact.

        A new graph is assumed to take `graph_ms` milliseconds; with 0 no decode is padded to spare one.

        Without `trees`, and if the target has no branches, the rows of a request are one chain.
        """
        self.target = target
        self.costs = costs
        self.eog = frozenset(eog)
        self.drafters = Drafters(site)
        self._turns = Turns(Crew(site.most, costs), part)
        self._threads = site.most  # of the last decode
        self.assignment = Assignment(self.drafters)
        self.running: list[Generation] = []
        self.counters = Counters()
        states = target.states if cache_ram else None
        self.saved = SavedStates(states, cache_ram, self.counters.add) if states is not None else None
        self.sequences = Sequences(target, self.saved)
        self._pace = Pace()
        self.sharing = Sharing(self._turns, self.drafters, self._pace)
        self._planner = Planner(
            target, self.sequences, self._turns, self.eog, min_rows, self.counters, self._pace, trees, graph_ms
        )
        self._walkers = Walkers(target, self.eog, site.most)
        self._speculation = speculation
        self._clock = clock

    def admit(self, claim: Claim, output: list[int], constraint: Constraint | None = None) -> Generation:
        """Start a claimed request. Needs a free slot.

        Earlier claims committed `output`, and `constraint` has stepped over it.
        """
        job = claim.job
        slot = self.sequences.acquire([*job.prompt, *output], job.cache_prompt)
        speculation = job.speculation
        if self._speculation is Speculation.OFF or not self.target.can_roll_back:
            speculation = Speculation.OFF
        elif speculation is Speculation.AUTO:
            speculation = self._speculation
        generation = Generation.start(claim, output, slot, speculation, self._clock() * 1000, constraint)
        self.running.append(generation)
        if self.target.can_copy:
            generation.follow(following.lead(generation, self.running))
        self.counters.add("requests", 1)
        self.counters.add("takeovers", claim.epoch > 1)
        self.counters.add("prompt_tokens", len(job.prompt))
        # A request that was taken over may also find the beginning of its answer in the cache.
        self.counters.add("cached_tokens", min(generation.cached, len(job.prompt)))
        self.counters.add("restored_tokens", min(slot.restored, len(job.prompt)))
        return generation

    def drop(self, generation: Generation) -> None:
        """Remove a request; its computed prefix stays in the cache."""
        self.running.remove(generation)
        self.sequences.release(generation.slot)
        for other in self.running:
            if other.leader is not None and other.leader.generation is generation:
                other.follow(following.lead(other, self.running))
        self.assignment.request_ended(generation)

    def close(self) -> None:
        """End the threads that draw."""
        self._walkers.close()

    def misfit(self, claim: Claim, output: list[int]) -> str:
        """Why this target cannot serve a claimed request, as a sentence for its client; empty if it can."""
        if len(claim.job.prompt) + len(output) >= self.target.n_ctx:
            return f"The prompt does not fit the verifier's context of {self.target.n_ctx} tokens."
        if max(map(max, filter(None, _tokens(claim.job, output)))) >= self.target.n_vocab:
            return "The request was made for another vocabulary than the verifier's."
        return ""

    def expired(self) -> list[Generation]:
        now_ms = self._clock() * 1000
        return [generation for generation in self.running if now_ms > generation.deadline_ms and not generation.lost]

    def reassign(self) -> tuple[list[Pairing], list[Pairing]]:
        """Assign drafters to all requests again; returns which sessions to open and which to close."""
        changes = self.assignment.reassign(self.running, self._clock() * 1000)
        self.sharing.look(self.running)
        return changes

    def take(self, proposals: Sequence[Proposal], now_ms: float) -> None:
        """Add proposals that arrived at `now_ms` to the tries of their running requests."""
        running = {generation.job.request_id: generation for generation in self.running}
        for proposal in proposals:
            generation = running.get(proposal.request_id)
            if generation is not None and generation.claim.epoch == proposal.epoch:
                fresh = generation.propose(proposal, self.drafters, self.target.n_vocab, now_ms)
                self.counters.add("stale_proposals", not fresh)

    def lead(self, generation: Generation, name: str) -> int:
        """How many guesses a drafter should keep ahead; 0 for a model drafter while its guesses do not pay."""
        quiet = generation.quiet_rounds
        always = generation.speculation is Speculation.ALWAYS
        if self.sharing.takes_turns(name):
            return self.sharing.lead(generation, name)
        if always or quiet < QUIET_ROUNDS or name not in self.drafters or self.drafters[name].card.kind != "model":
            return LEAD
        return LEAD if quiet % PROBE_EVERY < PROBE_ROUNDS else 0

    def worth(self, name: str) -> float:
        """The lowest probability of being needed at which a guess is worth a step now; 0: as the drafter was told."""
        return self.sharing.worth(name, max(1, len(self.running)))

    def plan(self, may_wait: bool = True) -> Round:
        return self._planner.plan(self.running, self.drafters, self._clock() * 1000, may_wait)

    def run(self, round: Round) -> Decoded:
        """Decode the rows, walk every request that has logits, and drop rejected rows from the cache.

        Call it in the target's thread. Raises `UndoneError` if llama.cpp cannot compute them; the next plan has them
        again.
        """
        branch_ms = self._branch(round.entries)
        threads = self._turns.crew(round.drafting).threads
        if threads != self._threads:
            self.target.use_threads(threads)
            self._threads = threads
        graphs, started = self.target.reused_graphs, self._clock()
        try:
            self.target.decode(round.rows)
        except LlamaError as error:
            for entry in round.entries:
                self._undo(entry)
            raise UndoneError(str(error)) from None
        decode_ms = (self._clock() - started) * 1000
        walks = self._walkers.walk(round.entries, threads)
        self._keep(round.entries, walks, branch_ms)
        self._catch_up()
        return Decoded(round, decode_ms, self.target.reused_graphs > graphs, walks)

    def _catch_up(self) -> None:
        before = {generation: generation.cached for generation in self.running if generation.leader is not None}
        for generation in following.catch_up(self.running, self.sequences):
            fresh = min(generation.cached, len(generation.job.prompt)) - before[generation]
            self.counters.add("cached_tokens", max(0, fresh))

    def _branch(self, entries: Sequence[RoundEntry]) -> float:
        """Let the leaves of all trees continue from the tokens of their requests. Returns the milliseconds it took."""
        started = self._clock()
        for entry in entries:
            self.sequences.branch(entry.generation.slot, entry.spares)
        return (self._clock() - started) * 1000

    def _keep(self, entries: Sequence[RoundEntry], walks: Sequence[Walk | None], branch_ms: float) -> None:
        """Keep only accepted rows in the cache."""
        started = self._clock()
        paths = [found.path if found else [] for found in walks]
        for entry, path in zip(entries, paths, strict=True):
            self._join(entry, [entry.generation.trie.root, *path])
        branch_ms += (self._clock() - started) * 1000
        self._planner.branched(sum(len(entry.spares) for entry in entries), branch_ms)
        for entry, found, path in zip(entries, walks, paths, strict=True):
            self.sequences.accept(entry.generation.slot, [*entry.computed, *(node.token for node in path)])
            if found is not None and found.fault is BROKEN:
                self.sequences.spoil(entry.generation.slot)

    def _join(self, entry: RoundEntry, kept: Sequence[TrieNode]) -> None:
        """Keep the rows of the nodes that the target drew, the root first, and drop a tree's others."""
        if entry.leaves:
            rows = Counter(chain.from_iterable(entry.sequences.values()))
            own = Counter(chain.from_iterable(entry.sequences[node] for node in kept))
            ends = {leaf: LeafEnd(rows[leaf], own[leaf]) for leaf in entry.leaves}
            self.sequences.join(entry.generation.slot, ends, len(kept))

    def _undo(self, entry: RoundEntry) -> None:
        """Drop what a failed decode may have left in the cache: it computes large batches in parts."""
        self._join(entry, [])
        if self.target.can_roll_back:
            self.sequences.rewind(entry.generation.slot)
        else:
            self.sequences.cut(entry.generation.slot, 0)

    @staticmethod
    def give_up(round: Round) -> list[Gain]:
        """End the requests of a round that cannot be decoded."""
        error = Chunk(tokens=(), finish=Finish.ERROR, detail=DETAIL)
        return [Gain(entry.generation, entry.generation.offset, error) for entry in round.entries]

    def finish(self, decoded: Decoded) -> list[Gain]:
        """Turn a decoded round into chunks, verdicts on guesses, and statistics."""
        round, now_ms = decoded.round, self._clock() * 1000
        self.counters.add("decodes", 1)
        self.counters.add("reused_graphs", decoded.reused)
        self.counters.add("decode_us", int(decoded.decode_ms * 1000))
        self._planner.ended(decoded)
        self.sharing.look(self.running)
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
            generation.piece_read()
            return Gain(generation, base, None)
        self._judge(entry, result)
        sources = [self._source(node) for node in result.path]
        sources += [""] * (len(result.tokens) - len(sources))
        tried = self._tried(entry, result)
        turn = self.sharing.turn(generation, self.running)
        generation.advance(result.tokens, self.drafters, now_ms, self._wanted, turn)
        width = len(entry.drafts)
        generation.round_ended(entry.reason, guessed=any(not node.forced for node in entry.drafts))
        self.assignment.round_ended(generation)
        self.counters.add("rounds", 1)
        self.counters.add("tokens", len(result.tokens))
        finish = Finish.NONE
        if result.fault:
            finish = Finish.ERROR
        elif result.ended or result.complete:
            finish = Finish.STOP
        elif generation.room(self.target.n_ctx) <= 0:
            finish = Finish.LENGTH
        if finish is Finish.NONE:
            self.counters.start(width, tried, len(result.path), bool(generation.trie.root.children))
        return Gain(
            generation,
            base,
            Chunk(
                tokens=tuple(result.tokens),
                sources=tuple(sources) if any(sources) else (),
                drafted=width,
                accepted=len(result.path),
                reason=entry.reason,
                logprobs=tuple(result.logprobs),
                finish=finish,
                detail=result.fault,
                cached=generation.cached if generation.rounds == 1 else 0,
                tried=tried,
            ),
        )

    def _wanted(self, arrival: ExpectedDrafts, limit: int) -> int:
        return self._planner.wanted(arrival, limit, others=len(self.running) - 1)

    @staticmethod
    def _tried(entry: RoundEntry, result: Walk) -> int:
        """The number of offsets at which a draft was compared with the target's draw."""
        last = result.path[-1] if result.path else entry.generation.trie.root
        return len(result.path) + any(child in entry.rows for child in last.children.values())

    def _judge(self, entry: RoundEntry, result: Walk) -> None:
        """Tell every drafter what became of its guesses, and count the verified ones.

        A guess without a row is judged too if the target drew at its place. So the verifier notices that a resting
        drafter has become good again without spending rows on it. Forced tokens are not judged.
        """
        nodes = [entry.generation.trie.root, *result.path]
        for node, drawn in zip(nodes, result.drawn, strict=False):
            for child in node.children.values():
                for name, guess in child.guesses.items():
                    if name in self.drafters and not child.forced:
                        self.drafters[name].judge(guess.score, child.token == drawn, guess.rank)
        if not entry.drafts:
            return
        self.counters.verified(len(entry.drafts), len(result.path))
        sessions = entry.generation.sessions.keys()
        accepted = [node for node in result.path if not node.forced]
        for name in entry.generation.contributions.observe([node.guesses.keys() & sessions for node in accepted]):
            if name in self.drafters:
                self.drafters[name].count(added=1)
        drafts = [node for node in entry.drafts if not node.forced]
        for name in {name for node in drafts for name in node.guesses if name in self.drafters}:
            guessed, right = (sum(name in node.guesses for node in nodes) for nodes in (drafts, accepted))
            self.drafters[name].count(rounds=1, drafted=guessed, accepted=right)

    def _source(self, node: TrieNode) -> str:
        """The source of an accepted token: the grammar if it forced it, or else the drafter with the highest
        calibrated confidence."""
        if node.forced:
            return GRAMMAR
        known = [name for name in node.guesses if name in self.drafters]
        if not known:
            return next(iter(node.guesses), "")
        return max(known, key=lambda name: self.drafters[name].acceptance.estimate(*node.guesses[name]))
