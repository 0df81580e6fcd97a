"""The constraint on one request's answer: a grammar, a bound on its thinking, or both. No I/O.

It has a position, the committed prefix or a guess after it, and says what may come next there. That depends on the
prefix alone, so neither drafts nor a takeover change it.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from services.verifier.thinking import ThinkingBudget
from services.verifier.trie import Admissibility, TrieNode
from services.verifier.walk import DEAD_END, Rule
from shared.law.grammar import GrammarError, Grammars, Matcher
from shared.law.sampling import Mask
from shared.wire.messages import Job

logger = structlog.get_logger()

DOES_NOT_COMPILE: Final = "The grammar of this request cannot be used with this model."


class Constraint(Rule):
    """The constraint of one answer. All calls come from one thread at a time."""

    def __init__(self, grammar: Matcher | None, thinking: ThinkingBudget | None) -> None:
        self._origin = grammar.copy() if grammar is not None else None  # the grammar's start
        self._grammar = grammar
        self._thinking = thinking
        self._committed: list[int] = []
        self._beyond: list[int] = []  # tokens from the committed prefix to the position

    def push(self, token: int) -> bool:
        """Step over a token; False if it is not allowed here."""
        forced = self._due[:1] == (token,)
        if self._grammar is not None and not self._grammar.push(token):
            self._recover()
            return False
        if self._thinking is not None:
            self._thinking.push(token, forced)
        self._beyond.append(token)
        return True

    def commit(self, tokens: Sequence[int]) -> bool:
        """The committed prefix grew by `tokens`; False if they break the constraint."""
        kept = self.stand(tokens)
        self._committed += self._beyond
        self._beyond.clear()
        return kept

    def stand(self, path: Sequence[int] = ()) -> bool:
        """Go to the committed prefix and on along `path`; False, and at the prefix, if `path` is not allowed."""
        common = 0
        for here, there in zip(self._beyond, path, strict=False):
            if here != there:
                break
            common += 1
        self._pop(len(self._beyond) - common)
        if all(map(self.push, path[common:])):
            return True
        self._pop(len(self._beyond))
        return False

    def _pop(self, count: int) -> None:
        if count:
            del self._beyond[len(self._beyond) - count :]
            if self._grammar is not None:
                self._grammar.pop(count)
            if self._thinking is not None:
                self._thinking.pop(count)

    def _recover(self) -> None:
        """Replace a failed matcher: it stays failed, even if only a guess was wrong or used up its limits."""
        if self._origin is not None:
            self._grammar = self._origin.copy()
            for token in (*self._committed, *self._beyond):
                self._grammar.push(token)

    @property
    def complete(self) -> bool:
        """Nothing but an end may follow."""
        return self._grammar is not None and self._grammar.complete

    def forced(self) -> Sequence[int]:
        """The tokens that must come next; empty if there is a choice. The first is certain, the others nearly."""
        due = self._due
        if due or self._grammar is None:
            return due
        forced = self._grammar.forced
        if self._grammar.failed:
            self._recover()
            return ()
        return forced

    def mask(self) -> Mask | None:
        """The tokens that may come next if none is forced; None: any. All false: a dead end."""
        if self._grammar is None:
            return None
        mask = self._grammar.mask()
        if self._grammar.failed:
            self._recover()
            mask = self._grammar.mask()
        return mask

    def verdict(self, node: TrieNode, token: int) -> Admissibility:
        """Whether a guess of `token` after `node` of the trie can be right."""
        if not self._stand_at(node):
            return Admissibility.FORBIDDEN
        forced = self.forced()
        if forced:
            return Admissibility.FORCED if token == forced[0] else Admissibility.FORBIDDEN
        return Admissibility.FREE if self._admits([token]) else Admissibility.FORBIDDEN

    def forced_behind(self, node: TrieNode) -> Sequence[int]:
        """The tokens that must come after `node` of the trie."""
        return self.forced() if self._stand_at(node) else ()

    def _stand_at(self, node: TrieNode) -> bool:
        path: list[int] = []
        while node.parent is not None:
            path.append(node.token)
            node = node.parent
        return self.stand(path[::-1])

    @property
    def _due(self) -> tuple[int, ...]:
        return self._thinking.due(self._admits) if self._thinking is not None else ()

    def _admits(self, tokens: Sequence[int]) -> bool:
        return self._grammar is None or self._grammar.allows(tokens) == len(tokens)


def constrain(job: Job, output: Sequence[int], grammars: Grammars) -> Constraint | None:
    """The constraint of a job whose `output` is already committed; None if anything is allowed.

    Takes as long as compiling the grammar. Raises `GrammarError` with a sentence for the client.
    """
    if not job.grammar and job.thinking is None:
        return None
    try:
        grammar = grammars.compile(job.grammar) if job.grammar else None
    except GrammarError as error:
        # The error's text may quote the client's grammar.
        logger.warning("grammar_refused", request=job.request_id, error=type(error).__name__)
        raise GrammarError(DOES_NOT_COMPILE) from None
    constraint = Constraint(grammar, ThinkingBudget(job.thinking) if job.thinking is not None else None)
    if not constraint.commit(output):
        raise GrammarError(DEAD_END)
    return constraint
