"""One request's session with a draft model: what the model has read, and which sequences hold its guesses.

The session's own sequence holds the committed tokens. Every branch of guesses needs a sequence of its own, which starts
as a copy of the tokens before it (in the unified cache a copy shares the cells).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.drafter.draft_tree import DraftNode, DraftTree
from services.drafter.extension import Extension
from services.drafter.proposer import Opening
from shared.law.history import History
from shared.law.sampling import needs_history
from shared.model.sequences import Sequences, Slot
from shared.model.target import Target


@dataclass(slots=True, eq=False)
class Lane:
    """A sequence of the cache that holds the committed tokens and then the tokens of `path`."""

    id: int
    path: list[DraftNode] = field(default_factory=list)


class DraftSession:
    """`view` is what the model reads of the committed context: all of it, or its head and tail if it is too long.

    The slot's tokens are the computed part of the view: all of it once the tree's root is drawn.
    """

    def __init__(self, opening: Opening, slot: Slot, sequences: Sequences, target: Target) -> None:
        self.opening = opening
        self.slot = slot
        self.tree = DraftTree(opening.prompt, opening.committed, opening.worth)
        self.extension = Extension(opening)
        self.lead = opening.lead
        self.want = 0  # tokens that the verifier waits for
        self.history: History | None = None
        if needs_history(opening.sampling):
            self.history = History(opening.prompt, opening.committed)
        self.view: list[int] = []
        self.broken = False  # see `spoil`
        self._sequences = sequences
        self._target = target
        self._lanes = [Lane(slot.id)]
        self._free = list(sequences.spares(slot))
        self._look()

    def _look(self) -> None:
        """Make the view again: everything if it fits with room to draft, or else the head and the tail."""
        context = [*self.opening.prompt, *self.tree.output]
        n_ctx = self._target.n_ctx
        if len(context) + self.lead + 1 > n_ctx:
            head = n_ctx // 4
            context = context[:head] + context[-max(head, n_ctx // 2 - self.lead) :]
        self.view = context
        self.tree.restart()
        self._keep({})
        self._sequences.rewind(self.slot)
        # The last token is always computed again, because its logits are needed.
        self._sequences.keep(self.slot, self.view[:-1])

    @property
    def uncomputed(self) -> int:
        """The number of tokens to read before the next guess; 1 while drafting."""
        return max(1, len(self.view) - len(self.slot.tokens))

    def best(self, count: int = 1) -> list[DraftNode]:
        """Up to `count` nodes to draw in one step, the best first; none if there is nothing to do.

        No node is an ancestor of another. The nodes after the first leave enough cells for the rest of the lead.
        """
        if self.tree.ahead >= self.lead:
            return []
        beside = self._target.n_ctx - 1 - len(self.view) - self.lead - self.tree.beside
        chosen: list[DraftNode] = []
        ends = {lane.path[-1] if lane.path else self.tree.root for lane in self._lanes}
        free = len(self._free)
        for node in self.tree.worth():
            if node.parent is None:
                return [node]
            if node.token in self.opening.eog or self._position(node) >= self._target.n_ctx:
                continue
            if node.parent in ends:
                ends.remove(node.parent)
            elif free:
                free -= 1
            else:
                continue
            chosen.append(node)
            if len(chosen) >= min(count, 1 + beside):
                break
        return chosen

    def _position(self, node: DraftNode) -> int:
        return len(self.view) - 1 + node.offset - self.tree.root.offset

    def path(self, node: DraftNode) -> list[int]:
        """The guessed tokens from the root's child down to `node`."""
        tokens: list[int] = []
        while node.parent is not None:
            tokens.append(node.token)
            node = node.parent
        return tokens[::-1]

    def read(self, count: int) -> list[int]:
        """Up to `count` tokens of the view to compute next; from now on they count as computed."""
        start = len(self.slot.tokens)
        tokens = self.view[start : start + count]
        self._sequences.add(self.slot, tokens)
        return tokens

    def row(self, node: DraftNode) -> tuple[int, int]:
        """The position and the sequence for the row of a node below the root, which becomes the end of a lane."""
        assert node.parent is not None, "the root's row is the end of the view"
        lane = self._lane_ending_in(node.parent) or self._branch(node.parent)
        lane.path.append(node)
        return self._position(node), lane.id

    def _lane_ending_in(self, node: DraftNode) -> Lane | None:
        return next((lane for lane in self._lanes if (lane.path[-1] if lane.path else self.tree.root) is node), None)

    def _branch(self, node: DraftNode) -> Lane:
        source, length = self._lanes[0], 0
        if node is not self.tree.root:
            source = next(lane for lane in self._lanes if node in lane.path)
            length = source.path.index(node) + 1
        lane = Lane(self._free.pop(), source.path[:length])
        self._target.copy(source.id, lane.id, len(self.view) + length)
        self._lanes.append(lane)
        return lane

    @property
    def awaited(self) -> bool:
        """Whether the verifier waits for every guess that may still be made, so that its target rests meanwhile."""
        return self.tree.ahead < self.lead <= self.want

    def commit(
        self, base: int, tokens: Sequence[int], lead: int, want: int, worth: float = 0.0
    ) -> list[DraftNode] | None:
        """The target decided `tokens` after `base`. Returns the tree's new roots, or None, as `DraftTree.commit`."""
        self.lead, self.want = lead, want
        self.tree.price(worth or self.opening.worth)
        computed = len(self.view)  # the whole view was computed if any node below the root was drawn
        passed = self.tree.commit(base, tokens)
        if not passed:
            return passed
        if self.history is not None:
            for node in passed:
                self.history.push(node.token)
        decided = [node.token for node in passed]
        self.extension.commit(decided)
        self.view += decided
        if len(self.view) + self.lead + 1 > self._target.n_ctx:
            self._look()
        else:
            self._follow([node for node in passed if node.drawn], computed)
        return passed

    def _follow(self, right: list[DraftNode], computed: int) -> None:
        """Keep the lanes that hold the committed path; `right` are the drawn nodes on it."""
        own = self._lanes[0]
        reached = len(right)
        if right and own.path[:reached] != right:
            holder = next(lane for lane in self._lanes if lane.path[:reached] == right)
            if not self._target.copy(holder.id, own.id, computed + reached, computed):
                self._sequences.cut(self.slot, 0)
                self._look()
                return
            own.path = list(right)
        if right:
            self._sequences.add(self.slot, [node.token for node in right])
        if self.tree.root.drawn:
            paths = {lane: lane.path[reached:] for lane in self._lanes if lane.path[:reached] == right}
            self._keep({lane: path for lane, path in paths.items() if path})
        else:
            self._keep({own: []})
            self._sequences.rewind(self.slot)

    def _keep(self, paths: dict[Lane, list[DraftNode]]) -> None:
        """Give the lanes new paths, and empty lanes without one; the session's own lane always stays."""
        for lane in self._lanes[1:]:
            if lane not in paths:
                self._target.truncate(lane.id, 0)
                self._free.append(lane.id)
        self._lanes = [self._lanes[0], *(lane for lane in self._lanes[1:] if lane in paths)]
        for lane in self._lanes:
            lane.path = paths.get(lane, [])

    def spoil(self) -> None:
        """The model gave logits from which no guess can be drawn; those after them would be broken too."""
        self.broken = True

    def close(self) -> None:
        """Drop the guesses and leave the committed tokens as prefix cache, unless the model broke on them."""
        self._keep({})
        self._sequences.rewind(self.slot)
        if self.broken:
            self._sequences.spoil(self.slot)
        self._sequences.release(self.slot)
