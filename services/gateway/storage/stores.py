"""The state that outlives one request."""

from dataclasses import dataclass, replace

from services.gateway.storage.kept_turns import TurnStore
from services.gateway.storage.records import RecordStore
from services.gateway.storage.response_store import ResponseStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that a later request may refer to."""

    turns: TurnStore
    responses: ResponseStore
    records: RecordStore

    def of(self, caller: str) -> "Stores":
        """The stores of this caller; `caller` is the result of `Guard.check`."""
        return replace(
            self,
            turns=self.turns.of(caller),
            responses=self.responses.of(caller),
            records=self.records.of(caller),
        )
