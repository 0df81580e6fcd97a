"""What was seen: one record per request and one per fault. Times are seconds of the loop's clock."""

from dataclasses import dataclass, field
from enum import StrEnum


class Ending(StrEnum):
    """How a request ended, as its client saw it."""

    FINISHED = "finished"  # a finish reason and the end mark
    FAILED = "failed"  # an error event and the end mark
    CUT = "cut"  # the connection broke before the end mark
    REFUSED = "refused"  # an error status
    UNREACHABLE = "unreachable"  # no connection, or none that answered
    LEFT = "left"  # the client went away itself
    STUCK = "stuck"  # nothing ended it in time


@dataclass(slots=True, kw_only=True)
class Request:
    """One request."""

    question: int
    gateway: str
    began: float
    ended: float = 0.0
    ending: Ending = Ending.STUCK
    tokens: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)  # when tokens came
    finishes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # codes of error events
    marks: int = 0  # end marks
    after_end: int = 0  # frames behind the end mark
    status: int = 0
    retry_after: bool = False


class Kind(StrEnum):
    """What can go wrong."""

    KILL_VERIFIER = "kill a verifier"
    FREEZE_VERIFIER = "freeze a verifier past its lease"
    KILL_DRAFTER = "kill a drafter"
    PART_DRAFTER = "part a drafter from Redis"
    KILL_GATEWAY = "kill a gateway"
    RESTART_REDIS = "restart Redis"
    EMPTY_REDIS = "restart Redis empty"
    LOSE_REPLIES = "lose replies of Redis"
    REFUSE = "let Redis refuse"
    LOSE_QUEUE = "lose the job stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A process that ended although nobody had killed it."""

    name: str
    moment: float
    status: int
    said: str  # its last words


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, from when it struck to when what it broke was there again."""

    kind: Kind
    target: str
    began: float
    ended: float
    note: str = ""
