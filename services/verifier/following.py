"""Requests whose prompts begin alike and that arrive together: one reads the common part, the others copy it.

A request *follows* an earlier one that is still reading its prompt if it would gain a prefix worth a copy. It reads
nothing until the leader has read that prefix, takes a copy, and reads its own rest. If the leader ends before that, it
follows the next one or reads by itself. A leader is always older, so nobody waits in a circle.
"""

from collections.abc import Sequence

from services.verifier.generation import Generation, Leader
from shared.model.prefix_index import common_prefix
from shared.model.sequences import MIN_COPY, Sequences


def lead(follower: Generation, running: Sequence[Generation]) -> Leader | None:
    """Whom a request that has read nothing yet should follow, among the `running` ones; None: it reads by itself."""
    best: Leader | None = None
    if not follower.job.cache_prompt:
        return None
    for other in running:
        if other is follower:
            break  # only older ones, so that nobody waits in a circle
        if other.uncomputed <= 1 or other.lost or not other.job.cache_prompt:
            continue
        # The last token is always computed, because its logits are needed.
        length = min(common_prefix(other.context, follower.context), len(follower.context) - 1)
        gained = length - max(len(follower.slot.tokens), best.length if best else 0)
        if gained >= MIN_COPY or (best is not None and gained > 0):
            best = Leader(other, length)
    return best


def need(generation: Generation, running: Sequence[Generation]) -> int:
    """The rows after which the first of a request and its followers has its prompt read: its claim to be short."""
    rests = [generation.uncomputed]
    for other in running:
        if other.leader is not None and other.leader.generation is generation:
            own = len(other.context) - other.leader.length
            rests.append(max(0, other.leader.length - len(generation.slot.tokens)) + own)
    return min(rests)


def catch_up(running: Sequence[Generation], sequences: Sequences) -> list[Generation]:
    """Copy to all followers what their leaders have read by now; returns who got it. Call it in the target's thread."""
    found = []
    for generation in running:
        leader = generation.leader
        if leader is not None and len(leader.generation.slot.tokens) >= leader.length:
            sequences.copy(leader.generation.slot, generation.slot, leader.length)
            generation.follow(None)
            found.append(generation)
    return found
