"""Servers' reports about their drafts, in one form: drafted, accepted, and how often at each offset of a chain. Pure.

Read from the events of a stream: draftmesh's `speculative`, llama-server's `timings`, and vLLM's
`metrics.speculative_decoding` (docs/features/speculative_decoding/acceptance_metrics.md of vLLM).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import mul
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """Drafts of one answer or of many.

    `reached[i]` counts the drafts at offset i of their chain whose predecessors were all accepted, `kept[i]` those of
    them that were accepted too; both are empty if the server reports no offsets. `reason` is the server's reason for
    drafting nothing.
    """

    drafted: int
    accepted: int
    reached: tuple[float, ...] = ()
    kept: tuple[float, ...] = ()
    reason: str = ""

    @property
    def rate(self) -> float | None:
        """Accepted drafts among all that were verified; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def by_offset(self) -> tuple[float, ...]:
        """Per offset, the share of the drafts that got there and were accepted."""
        return tuple(kept / reached for kept, reached in zip(self.kept, self.reached, strict=True) if reached)

    def tokens_per_round(self, tokens: int) -> float:
        """Tokens per decode of the target in `tokens` tokens: each decode adds one token of its own to the drafts."""
        return tokens / max(1, tokens - self.accepted)


class _Ours(msgspec.Struct):
    drafted: int
    accepted: int
    rounds: int
    acceptance_per_offset: list[float] = []
    reason: str | None = None


class _LlamaServer(msgspec.Struct):
    draft_n: int
    draft_n_accepted: int


class _Vllm(msgspec.Struct):
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    acceptance_histogram_by_draft_length: dict[str, list[int]] = {}


def read(event: Mapping[str, Any]) -> DraftCounts | None:
    """The draft counts in one event of a stream; None if it has none, or none that we understand."""
    try:
        if said := event.get("speculative"):
            return _ours(msgspec.convert(said, _Ours))
        if said := event.get("timings"):
            counts = msgspec.convert(said, _LlamaServer)
            return DraftCounts(drafted=counts.draft_n, accepted=counts.draft_n_accepted)
        metrics = event.get("metrics")
        if isinstance(metrics, dict) and (said := metrics.get("speculative_decoding")):
            return _vllm(msgspec.convert(said, _Vllm))
    except msgspec.ValidationError:
        return None
    return None


def pooled(parts: Iterable[DraftCounts]) -> DraftCounts | None:
    """The sum; None of nothing."""
    parts = list(parts)
    if not parts:
        return None
    return DraftCounts(
        drafted=sum(part.drafted for part in parts),
        accepted=sum(part.accepted for part in parts),
        reached=_sums(part.reached for part in parts),
        kept=_sums(part.kept for part in parts),
    )


def _sums(rows: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0.0))


def _ours(said: _Ours) -> DraftCounts:
    """The rates have no counts, so this estimates them as if no chain ended before its first refusal."""
    rates = said.acceptance_per_offset
    survival = list(accumulate(rates, mul))
    first = said.accepted / sum(survival) if sum(survival) else float(min(said.rounds, said.drafted))
    reached = tuple(first * share for share in [1.0, *survival][: len(rates)])
    return DraftCounts(
        drafted=said.drafted,
        accepted=said.accepted,
        reached=reached,
        kept=tuple(count * rate for count, rate in zip(reached, rates, strict=True)),
        reason=said.reason or "",
    )


def _vllm(said: _Vllm) -> DraftCounts:
    """The histogram's rows hold, for chains of one length, how many had 0, 1, 2, … drafts accepted."""
    rows = said.acceptance_histogram_by_draft_length.values()
    longest = max((len(row) - 1 for row in rows), default=0)
    long_enough = [[row for row in rows if len(row) > offset + 1] for offset in range(longest)]
    return DraftCounts(
        drafted=said.num_draft_tokens,
        accepted=said.num_accepted_draft_tokens,
        reached=tuple(float(sum(sum(row[offset:]) for row in rows)) for offset, rows in enumerate(long_enough)),
        kept=tuple(float(sum(sum(row[offset + 1 :]) for row in rows)) for offset, rows in enumerate(long_enough)),
    )
