"""What outlives one request."""

from dataclasses import dataclass, replace

from services.gateway.responses.records import RecordStore
from services.gateway.responses.store import ResponseStore
from services.gateway.turns import TurnStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that a later request may refer to."""

    turns: TurnStore
    responses: ResponseStore
    records: RecordStore

    def of(self, caller: str) -> "Stores":
        """What this caller may refer to; `caller` is what `Guard.check` gave."""
        return replace(self, responses=self.responses.of(caller), records=self.records.of(caller))
