"""How many requests one model may have, running and waiting: of all callers together, of one caller, and in tokens."""

from dataclasses import dataclass
from typing import Final

from services.gateway.models.served_model import ServedModel
from shared.wire.jobs import Admission

# With the default of 8 slots, this lets in as many requests of full length as the request limit does.
_FILLS: Final = 32
_CALLER: Final = 16  # digits of a caller's digest: enough to tell callers apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for each model; 0: a caller may have the places that others leave free, and tokens are bounded by 32 times
    what the verifiers hold."""

    requests: int
    per_caller: int = 0
    tokens: int = 0

    def admission(self, model: ServedModel, caller: str) -> Admission:
        """What `caller`, a hexadecimal digest or "", may have of this model now."""
        return Admission(caller=caller[:_CALLER], limit=self.per_caller, tokens=self.tokens or _FILLS * model.n_cells)
