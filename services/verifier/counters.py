"""What a verifier counts while it runs, for its card, `draftmesh status` and the metrics."""

from dataclasses import dataclass, field
from typing import Final

from shared.law.payoff import MAX_WIDTH
from shared.wire.messages import RoundStarts

PLAIN: Final = "plain"
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"


@dataclass(slots=True)
class Counters:
    """Counts for the card and the metrics; microseconds where a name ends in `_us`."""

    values: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            (
                "requests", "rounds", "tokens", "prompt_tokens", "cached_tokens", "restored_tokens", "saved_bytes",
                "evicted_states", "drafts", "draft_tokens", "accepted_tokens", "decodes", "decode_us", "busy_us",
                "reused_graphs", "padding_rows", "takeovers", "lost_stale", "lost_gap", "lost_gone", "poison", "unread",
                "stale_proposals",
            ),
            0,
        )
    )  # fmt: skip
    accepted_per_position: list[int] = field(default_factory=lambda: [0] * MAX_WIDTH)
    _starts: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def add(self, name: str, amount: int) -> None:
        self.values[name] += amount

    def verified(self, drafted: int, accepted: int) -> None:
        """A round verified `drafted` draft rows of a request and accepted the first `accepted` places."""
        self.add("drafts", 1)
        self.add("draft_tokens", drafted)
        self.add("accepted_tokens", accepted)
        for position in range(accepted):
            self.accepted_per_position[position] += 1

    def start(self, width: int, tried: int, accepted: int, ready: bool) -> None:
        """A request's next round begins. `ready`: it has drafts already.

        The round before had `width` draft rows, and the walk accepted `accepted` of the `tried` offsets.
        """
        after = PLAIN if not width else REFUSED if tried > accepted else ACCEPTED
        entry = self._starts.setdefault((after, accepted if after == REFUSED else 0), [0, 0])
        entry[0] += 1
        entry[1] += ready

    @property
    def starts(self) -> tuple[RoundStarts, ...]:
        return tuple(
            RoundStarts(after=after, offset=offset, rounds=rounds, ready=ready)
            for (after, offset), (rounds, ready) in sorted(self._starts.items())
        )
