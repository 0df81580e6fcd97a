"""What outlives one request."""

from dataclasses import dataclass

from services.gateway.turns import TurnStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that a later request may refer to."""

    turns: TurnStore
