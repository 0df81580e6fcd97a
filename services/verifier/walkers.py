"""Walks the requests of a decoded round, on several threads where draws take longer than handing them over.

Several requests are walked at once. If there is only one, other threads draw at its drafts before the walk comes
there, if a draw depends on nothing but the row and the offset. Draws behind a wrong draft are in vain, but they take
only cores that rest. Either way each draw is the one that a walk on one thread would make.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from services.verifier.round import RoundEntry
from services.verifier.trie import TrieNode
from services.verifier.walk import ANYTHING, NOTHING, Walk, walk
from shared.law import draws
from shared.law.sampling import Draw, Logits, is_greedy
from shared.model.target import Target

LONG: Final = 64_000  # numbers in a row: a draw from fewer is done before another thread has begun


class Walkers:
    def __init__(self, target: Target, eog: frozenset[int], threads: int) -> None:
        """At most so many threads draw, the caller's included."""
        self._target = target
        self._eog = eog
        many = threads > 1 and target.n_vocab >= LONG
        self._helpers = ThreadPoolExecutor(threads - 1, thread_name_prefix="draw") if many else None

    def walk(self, entries: Sequence[RoundEntry], threads: int) -> tuple[Walk | None, ...]:
        """The walk of each entry, None for one without rows. Call it in the target's thread; others help, so that at
        most `threads` draw. All of them rest when it returns."""
        # A target is asked by its own thread only.
        rows = [{node: self._target.logits(row) for node, row in entry.rows.items()} for entry in entries]
        helpers, walking = self._helpers if threads > 1 else None, sum(map(bool, rows))
        if helpers is None or not walking:
            return tuple(map(self._walk, entries, rows))
        if walking == 1:
            return tuple(self._walk_ahead(*one, helpers, threads) for one in zip(entries, rows, strict=True))
        return self._walk_together(entries, rows, helpers, threads)

    def _walk_together(
        self,
        entries: Sequence[RoundEntry],
        rows: Sequence[Mapping[TrieNode, Logits]],
        helpers: ThreadPoolExecutor,
        threads: int,
    ) -> tuple[Walk | None, ...]:
        found: list[Walk | None] = [None] * len(entries)
        left = deque(range(len(entries)))

        def help_walking() -> None:
            while left:
                try:
                    index = left.popleft()
                except IndexError:  # another thread was faster
                    return
                found[index] = self._walk(entries[index], rows[index])

        others = [helpers.submit(help_walking) for _ in range(min(threads, len(entries)) - 1)]
        try:
            help_walking()
        finally:
            wait(others)
        for other in others:
            other.result()
        return tuple(found)

    def _walk_ahead(
        self, entry: RoundEntry, rows: Mapping[TrieNode, Logits], helpers: ThreadPoolExecutor, threads: int
    ) -> Walk | None:
        """Let others draw at all drafts but every `threads`-th, which is left to the walk itself."""
        generation, parameters = entry.generation, entry.generation.job.sampling
        alone = generation.history is None and generation.rule is ANYTHING and not is_greedy(parameters)
        ahead: dict[TrieNode, Future[Draw]] = {}
        for place, (node, row) in enumerate(rows.items() if alone else ()):
            if place % threads:
                ahead[node] = helpers.submit(draws.draw, row, parameters, None, None, node.offset + 1)
        try:
            return self._walk(entry, rows, ahead)
        finally:
            wait([one for one in ahead.values() if not one.cancel()])

    def _walk(
        self, entry: RoundEntry, rows: Mapping[TrieNode, Logits], ahead: Mapping[TrieNode, Future[Draw]] = NOTHING
    ) -> Walk | None:
        if not rows:
            return None
        generation, job = entry.generation, entry.generation.job
        return walk(
            generation.trie.root,
            rows,
            job.sampling,
            generation.history,
            self._eog,
            generation.room(self._target.n_ctx),
            job.top_logprobs,
            generation.rule,
            ahead,
        )

    def close(self) -> None:
        """End the threads."""
        if self._helpers is not None:
            self._helpers.shutdown()
