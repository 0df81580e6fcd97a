"""`python -m bench.copying`: what lookup is worth where answers repeat what is known. No model runs.

The answers are known beforehand, so a round is: the drafter proposes, as many rows are chosen as the verifier's rule
would choose, the rows that the answer follows are accepted, the rest is refused. All deterministic but the clock.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from bench.cases import Case, cases
from services.drafter.lookup_proposer import LookupProposer
from services.drafter.proposer import Draft, Opening, Path, Proposer, join
from services.verifier.tree import rank
from services.verifier.trie import Guess, Trie, TrieNode
from shared.law.acceptance import Acceptance
from shared.law.payoff import MAX_WIDTH
from shared.model import model_source
from shared.model.llama.model import Model
from shared.model.rows import MAX_LEAVES
from shared.wire.messages import Sampling

ROW_COST: Final = 0.05  # of one more row, in plain steps: between a flat GPU and a CPU
_LEAD: Final = 64  # as the verifier's
_NAME: Final = "lookup"


@dataclass(slots=True)
class Tally:
    """What a drafter was worth on some requests; `brier` sums squared errors over judged guesses."""

    tokens: int = 0
    rounds: int = 0
    started: int = 0  # rounds with at least one row of drafts
    drafted: int = 0  # rows
    accepted: int = 0
    cost: float = 0.0  # in plain steps
    judged: int = 0
    brier: float = 0.0
    step_s: float = 0.0  # CPU time

    def add(self, other: "Tally") -> None:
        for name in (item.name for item in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Verifier:
    """Stands for the target: rows by the verifier's rule, or every guess there is if `row_cost` is 0."""

    proposer: Proposer
    row_cost: float = ROW_COST
    acceptance: Acceptance = field(default_factory=Acceptance)

    def answer(self, case: Case, name: str) -> Tally:
        """Run one request to its end."""
        tally = Tally(tokens=len(case.answer))
        trie = Trie(case.prompt)
        opening = Opening(name, case.prompt, (), Sampling(seed=0), frozenset(), n_vocab=1 << 31, lead=_LEAD, model="m")
        self.proposer.open(opening)
        widest = 0
        while trie.offset < len(case.answer):
            began = time.thread_time()
            drafts = self._drafts()
            tally.step_s += time.thread_time() - began
            for draft in drafts:
                trie.attach(draft.base, draft.prefix_hash, draft.tokens, draft.scores, _NAME, draft.parents)
            rows = self._choose(trie, min(MAX_WIDTH, len(case.answer) - trie.offset - 1))
            accepted = self._walk(trie, rows, case.answer, tally)
            tally.rounds += 1
            tally.started += bool(rows)
            tally.drafted += len(rows)
            tally.accepted += accepted
            tally.cost += 1.0 + self.row_cost * len(rows)
            widest = max(len(rows), widest - 1)
            base = trie.offset
            news = case.answer[base : base + accepted + 1]
            trie.advance(news)
            began = time.thread_time()
            self.proposer.commit(name, base, news, min(256, 2 * widest + 10))
            tally.step_s += time.thread_time() - began
        self.proposer.close(name)
        return tally

    def _drafts(self) -> list[Draft]:
        drafts: list[Draft] = []
        while self.proposer.busy:
            drafts += self.proposer.step()
        return join(drafts)

    def _choose(self, trie: Trie, most: int) -> set[TrieNode]:
        """The likeliest nodes, as long as each makes the round's tokens per time more."""
        ranking = rank(trie.root, lambda node: self.acceptance.estimate(*node.guesses[_NAME]), (), most, MAX_LEAVES)
        rows: set[TrieNode] = set()
        tokens, cost = 1.0, 1.0
        for node, reach in zip(ranking.nodes, ranking.reach, strict=True):
            if (tokens + reach) / (cost + self.row_cost) <= tokens / cost:
                break
            tokens, cost = tokens + reach, cost + self.row_cost
            rows.add(node)
        return rows

    def _walk(self, trie: Trie, rows: set[TrieNode], answer: Sequence[int], tally: Tally) -> int:
        """How many drafts the answer follows; everything that was guessed where it drew is judged."""
        node, accepted = trie.root, 0
        while True:
            token = answer[trie.offset + accepted]
            for child in node.children.values():
                self._judge(child.guesses[_NAME], child.token == token, tally)
            following = node.children.get(token)
            if following is None or following not in rows:
                return accepted
            node, accepted = following, accepted + 1

    def _judge(self, guess: Guess, right: bool, tally: Tally) -> None:
        chance = self.acceptance.estimate(*guess)
        tally.judged += 1
        tally.brier += (chance - right) ** 2
        self.acceptance.learn(guess.score, right, guess.rank)


class PromptLookup:
    """The plain method for comparison: ten tokens after the latest place with the same last three (Saxena 2023)."""

    step_us, burst, sessions = 0, 1, 1

    def __init__(self) -> None:
        self._path = Path((), ())
        self._name = ""
        self._places: dict[tuple[int, ...], int] = {}
        self._tokens: list[int] = []
        self.busy = False

    def open(self, opening: Opening) -> None:
        self._name, self._path = opening.request_id, Path(opening.prompt, opening.committed)
        self._places, self._tokens = {}, []
        self._extend((*opening.prompt, *opening.committed))
        self.busy = True

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        self._path.commit(base, tokens)
        self._extend(tokens)
        self.busy = True
        return True

    def close(self, request_id: str) -> None:
        self.busy = False

    def step(self) -> list[Draft]:
        self.busy = False
        self._path.drop_guesses()
        place = self._places.get(tuple(self._tokens[-3:]))
        tokens = tuple(self._tokens[place : place + 10]) if place else ()
        base = self._path.committed
        return [Draft(self._name, base, self._path.hash(base), tokens, (0.6,) * len(tokens))] if tokens else []

    def _extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if len(self._tokens) >= 3:
                self._places[tuple(self._tokens[-3:])] = len(self._tokens)
            self._tokens.append(token)


def measure(proposer: Proposer, work: Iterable[Case], row_cost: float = ROW_COST) -> dict[str, Tally]:
    """Every request in order; a tally per workload."""
    tallies: dict[str, Tally] = {}
    verifier = Verifier(proposer, row_cost)
    for number, case in enumerate(work):
        tallies.setdefault(case.workload, Tally()).add(verifier.answer(case, f"r{number}"))
    return tallies


def table(title: str, tallies: dict[str, Tally]) -> Table:
    """One drafter's numbers for people."""
    columns: dict[str, Callable[[Tally], str]] = {
        "tokens/\nround": lambda tally: f"{tally.tokens / tally.rounds:.2f}",
        "rows/\nround": lambda tally: f"{tally.drafted / tally.rounds:.1f}",
        "accepted": lambda tally: f"{tally.accepted / max(1, tally.drafted):.0%}",
        "rounds\nwith drafts": lambda tally: f"{tally.started / tally.rounds:.0%}",
        "speed-up": lambda tally: f"{tally.tokens / tally.cost:.2f}",
        "Brier": lambda tally: f"{tally.brier / max(1, tally.judged):.3f}",
        "µs/\nround": lambda tally: f"{tally.step_s / tally.rounds * 1e6:.0f}",
    }
    result = Table(Column("workload", no_wrap=True), *columns, title=title, box=SIMPLE, padding=(0, 0, 0, 1))
    for workload, tally in tallies.items():
        result.add_row(workload, *(column(tally) for column in columns.values()))
    return result


def main() -> None:
    """Measure lookup and the plain method, and print both."""
    model = Model(model_source.resolve("default"), vocab_only=True)
    work = cases(model.vocabulary.tokenize)
    model.close()
    console = Console()
    console.print(f"speed-up is over plain steps where one more row costs {ROW_COST:.0%} of one")
    proposers: dict[str, Proposer] = {"lookup": LookupProposer(), "prompt lookup": PromptLookup()}
    for title, proposer in proposers.items():
        console.print(table(title, measure(proposer, work)))


if __name__ == "__main__":
    main()
