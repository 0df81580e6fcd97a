"""The records of a run: answers, failures and turns. Pure."""

from dataclasses import dataclass, field

from services.launcher.bench.acceptance import DraftCounts
from services.launcher.bench.plan import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAnswer:
    """An answer to its end. Times are seconds since the request was sent; `arrivals_s` has one per event with text."""

    prompt_tokens: int
    tokens: int
    counted: str  # "usage": the server's count; "chunks": it sent none, and each event was taken for a token
    finish: str
    arrivals_s: tuple[float, ...]
    total_s: float
    acceptance: DraftCounts | None
    fingerprint: str

    @property
    def first_token_s(self) -> float:
        return self.arrivals_s[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSample:
    """One answer; `index` and `step` say which of its turn's requests it is for."""

    server: str
    cell: Cell
    repetition: int
    index: int
    step: int
    prompt: int
    seed: int
    reply: TimedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request without an answer."""

    server: str
    cell: Cell
    repetition: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A whole turn at one server: all its answers' tokens, and the time from the first request to the last answer."""

    server: str
    cell: Cell
    repetition: int
    tokens: int
    seconds: float


@dataclass(slots=True)
class Measurements:
    """Everything so far."""

    samples: list[AnswerSample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
