"""What a verifier counts while it runs, for its card, `status` and the metrics."""

from dataclasses import dataclass, field

from services.verifier.scheduler import MAX_WIDTH


@dataclass(slots=True)
class Counters:
    """What the card and the metrics show; microseconds where the name says so."""

    values: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            (
                "requests", "rounds", "tokens", "prompt_tokens", "cached_tokens", "drafts", "draft_tokens",
                "accepted_tokens", "decodes", "decode_us", "busy_us", "padding_rows",
            ),
            0,
        )
    )  # fmt: skip
    accepted_per_position: list[int] = field(default_factory=lambda: [0] * MAX_WIDTH)

    def add(self, name: str, amount: int) -> None:
        self.values[name] += amount
