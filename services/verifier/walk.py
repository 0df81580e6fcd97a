"""The walk: the target draws its own token at each node and steps to the child with that token. Pure.

It is lossless for any guesses, because only tokens that the target drew are committed. A guess decides only whether the
logits for the next draw are already computed. Method: SpecExec (Svirschevski et al. 2024), with keyed Gumbel draws.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from services.verifier.trie import TrieNode
from shared.law import draws
from shared.law.history import History
from shared.law.sampling import BrokenLogits, Draw, Logits, Mask
from shared.wire.messages import Sampling, TokenLogprob


class Rule:
    """What may come next in an answer: by itself anything. It has a position, which moves along with the walk."""

    @property
    def complete(self) -> bool:
        """Nothing but an end may follow."""
        return False

    def forced(self) -> Sequence[int]:
        """The tokens that must come next, the first for certain; empty: there is a choice."""
        return ()

    def mask(self) -> Mask | None:
        """The tokens that may come next if there is a choice; None: any. All false: a dead end."""
        return None

    def push(self, token: int) -> bool:
        """Step over a token; False if it is not allowed."""
        return True


ANYTHING: Final = Rule()
NOTHING: Final[Mapping[TrieNode, Future[Draw]]] = MappingProxyType({})  # is drawn elsewhere

# Why a walk ended its request, as a sentence for its client.
DEAD_END: Final = "The grammar of this request leaves no token to go on with."
BROKEN: Final = (
    "The model gave numbers that are not finite, so no token can be drawn; its file may be damaged, or its device"
    " cannot compute it."
)


@dataclass(slots=True)
class Walk:
    """The result of one request's walk: every draw, and the accepted nodes."""

    drawn: list[int] = field(default_factory=list)
    path: list[TrieNode] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ended: bool = False  # the last draw was an end-of-generation token, which is not part of the answer
    complete: bool = False  # the rule lets nothing follow
    fault: str = ""  # why nothing could be drawn any more; empty if something could

    @property
    def tokens(self) -> list[int]:
        """The tokens to commit."""
        return self.drawn[:-1] if self.ended else self.drawn


def walk(
    root: TrieNode,
    rows: Mapping[TrieNode, Logits],
    parameters: Sampling,
    history: History | None,
    eog: Collection[int],
    limit: int,
    top_logprobs: int = -1,
    rule: Rule = ANYTHING,
    ahead: Mapping[TrieNode, Future[Draw]] = NOTHING,
) -> Walk:
    """Draw tokens from `root` on along the nodes in `rows`, at most `limit` tokens.

    The draw at a node uses the node's row and offset, and the rule's mask there. `history` and `rule` are advanced over
    the committed tokens. Other threads make the draws of `ahead`; what they have not begun is drawn here.
    """
    result = Walk()
    node = root
    while len(result.drawn) < limit and not result.complete:
        row, elsewhere = rows[node], ahead.get(node)
        try:
            if elsewhere is None or elsewhere.cancel():
                token = _draw(row, parameters, history, rule, node.offset + 1)
            else:
                token = elsewhere.result().token
            result.ended = token in eog
            if token is None or not (result.ended or rule.push(token)):
                result.fault = DEAD_END
                break
            if top_logprobs >= 0 and not result.ended:
                result.logprobs.append(TokenLogprob(*draws.log_probabilities(row, token, top_logprobs)))
        except BrokenLogits:
            result.fault = BROKEN
            break
        result.drawn.append(token)
        if result.ended:
            break
        if history is not None:
            history.push(token)
        result.complete = rule.complete
        child = node.children.get(token)
        if child is None or child not in rows:
            break
        result.path.append(child)
        node = child
    return result


def _draw(row: Logits, parameters: Sampling, history: History | None, rule: Rule, offset: int) -> int | None:
    """The target's token at `offset`; None if the rule allows none."""
    forced = rule.forced()
    if forced:
        return forced[0]
    mask = rule.mask()
    if mask is not None and not mask.any():
        return None
    return draws.draw(row, parameters, history, mask, offset).token
