"""How much speculation helped one answer, added up from its commits. Pure."""

from collections import Counter
from typing import Final

from shared.wire.messages import Chunk

# What each key of `DraftStatistics.report` means, for the reference.
MEANINGS: Final = {
    "drafted": "draft tokens that were verified",
    "accepted": "of which the target agreed with",
    "rounds": "decodes of the target that gave tokens to this answer",
    "tokens_per_round": "tokens of the answer over rounds",
    "acceptance_rate": "accepted over drafted; 0 where nothing was drafted",
    "acceptance_per_offset": "by place in the draft: the share accepted of those that were compared there",
    "reason": "why nothing was drafted, as it was in most rounds; null if something was",
    "by_source": "accepted tokens by the drafter that guessed them",
}


class DraftStatistics:
    """Adds up commits; a commit with tokens is one round."""

    def __init__(self) -> None:
        self.drafted = 0
        self.accepted = 0
        self.rounds = 0
        self.tokens = 0
        self._verified_at: Counter[int] = Counter()  # drafts that were compared, by offset
        self._accepted_at: Counter[int] = Counter()
        self._sources: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()  # of rounds that verified drafts, by how many were accepted

    def add(self, chunk: Chunk) -> None:
        """Count one commit."""
        if not chunk.tokens:
            return
        self.rounds += 1
        self.tokens += len(chunk.tokens)
        self.drafted += chunk.drafted
        self.accepted += chunk.accepted
        if chunk.drafted:
            self._lengths[chunk.accepted] += 1
        if chunk.reason:
            self._reasons[chunk.reason] += 1
        self._sources.update(filter(None, chunk.sources))
        # The walk stops at the first refusal: rows behind it were decoded but say nothing about their offset.
        self._verified_at.update(range(chunk.tried))
        self._accepted_at.update(range(min(chunk.tried, chunk.accepted)))

    def merge(self, other: "DraftStatistics") -> None:
        """Add another answer's sums."""
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.rounds += other.rounds
        self.tokens += other.tokens
        self._sources.update(other._sources)
        self._reasons.update(other._reasons)
        self._lengths.update(other._lengths)
        self._verified_at.update(other._verified_at)
        self._accepted_at.update(other._accepted_at)

    def report(self) -> dict[str, object]:
        """The `speculative` object of an answer. Rates are 0 where nothing was drafted."""
        commonest = self._reasons.most_common(1)
        return {
            "drafted": self.drafted,
            "accepted": self.accepted,
            "rounds": self.rounds,
            "tokens_per_round": round(self.tokens / self.rounds, 4) if self.rounds else 0.0,
            "acceptance_rate": round(self.accepted / self.drafted, 4) if self.drafted else 0.0,
            "acceptance_per_offset": [
                round(self._accepted_at[offset] / verified, 4) for offset, verified in sorted(self._verified_at.items())
            ],
            "reason": commonest[0][0] if commonest and not self.drafted else None,
            "by_source": dict(sorted(self._sources.items())),
        }

    def vllm(self) -> dict[str, object]:
        """The same under vLLM's names, over the rounds that verified drafts; the histogram counts rounds by accepted
        drafts."""
        steps = self._lengths.total()
        return {
            "mean_acceptance_length": round(1 + self.accepted / steps, 4) if steps else 1.0,
            "draft_acceptance_rate": round(self.accepted / self.drafted, 4) if self.drafted else 0.0,
            "acceptance_histogram": [self._lengths[length] for length in range(max(self._lengths, default=-1) + 1)],
            "num_spec_steps": steps,
            "num_draft_tokens": self.drafted,
            "num_accepted_tokens": self.accepted,
        }
