"""The parts of a check, one after another, each within its own time and all of them within one budget. Pure.

A part that fails costs only those that need its figures. Time that a part leaves over is for the later ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

LEAST_S: Final = 5.0  # a part that gets less is not begun: it could only fail


class Status(StrEnum):
    """How a part ended. Only `OK` has figures."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class PartFailed(Exception):
    """A part did not come to its end: one sentence that says why, and the end of what it printed."""

    def __init__(self, reason: str, log: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.log = tuple(log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. It takes at most `limit_s` and is not begun unless all that it `needs` ended well."""

    name: str
    title: str  # for people
    limit_s: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a part went. `reason` is empty if it went well; `log` holds the last lines of one that failed."""

    name: str
    status: Status
    seconds: float
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    log: tuple[str, ...] = ()


Figures = dict[str, dict[str, Any]]  # of parts that went well, by name
Attempt = Callable[[Part, Figures, float], dict[str, Any]]  # raises `PartFailed`


def run(
    parts: Sequence[Part],
    attempt: Attempt,
    total_s: float,
    clock: Callable[[], float],
    begun: Callable[[Part, float], object] = lambda part, seconds: None,
) -> Iterator[Result]:
    """Do every part once. `attempt` gets the figures so far and the seconds that it may take; `begun` is told before.

    An interrupt ends the iteration, with the results of the parts before it handed out.
    """
    start = clock()
    figures: Figures = {}
    for part in parts:
        left = total_s - (clock() - start)
        if missing := [name for name in part.needs if name not in figures]:
            yield _skipped(part, f"needs {' and '.join(missing)}, which did not end well")
        elif left < LEAST_S:
            yield _skipped(part, f"no time was left of {total_s:.0f} s")
        else:
            seconds = min(part.limit_s, left)
            begun(part, seconds)
            result = _attempted(part, attempt, figures, seconds, clock)
            if result.status is Status.OK:
                figures[part.name] = result.figures
            yield result


def _attempted(part: Part, attempt: Attempt, figures: Figures, seconds: float, clock: Callable[[], float]) -> Result:
    begin = clock()
    try:
        found = attempt(part, figures, seconds)
    except PartFailed as failure:
        took = clock() - begin
        return Result(name=part.name, status=Status.FAILED, seconds=took, reason=str(failure), log=failure.log)
    return Result(name=part.name, status=Status.OK, seconds=clock() - begin, figures=found)


def _skipped(part: Part, reason: str) -> Result:
    return Result(name=part.name, status=Status.SKIPPED, seconds=0.0, reason=reason)
