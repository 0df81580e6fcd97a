"""The walk: the target draws its own token at each node and steps to the child that carries it. Pure.

Lossless for any set of guesses: what is committed is what the target drew, and a guess only decides whether the next
draw's logits were computed in the same decode. Rule: SpecExec (Svirschevski et al. 2024), with keyed Gumbel draws.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from services.verifier.trie import Node
from shared import sampling
from shared.messages import Sampling, TokenLogprob


@dataclass(slots=True)
class Walk:
    """What one request gained in one round: every draw, the accepted nodes, and what of it is to be committed."""

    drawn: list[int] = field(default_factory=list)
    path: list[Node] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ended: bool = False  # the last draw was an end-of-generation token, which is not part of the answer

    @property
    def tokens(self) -> list[int]:
        return self.drawn[:-1] if self.ended else self.drawn


def walk(
    root: Node,
    rows: dict[Node, int],
    logits: Callable[[int], sampling.Logits],
    parameters: Sampling,
    history: sampling.History | None,
    eog: Collection[int],
    limit: int,
    top_logprobs: int = -1,
) -> Walk:
    """Draw from `root` on along the nodes that have rows (node to row index), at most `limit` tokens.

    `history` gains the tokens that are committed. The draw at a node uses that node's row and offset alone.
    """
    result = Walk()
    node = root
    while len(result.drawn) < limit:
        row = logits(rows[node])
        token = sampling.draw(sampling.law(row, parameters, history), parameters.seed, node.offset + 1).token
        result.drawn.append(token)
        if token in eog:
            result.ended = True
            break
        if top_logprobs >= 0:
            result.logprobs.append(TokenLogprob(*sampling.log_probabilities(row, token, top_logprobs)))
        if history is not None:
            history.push(token)
        child = node.children.get(token)
        if child is None or child not in rows:
            break
        result.path.append(child)
        node = child
    return result
