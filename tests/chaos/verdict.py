"""What the promises say about a run: each thing that must not be seen is a line. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from shared.settings import command_line
from tests.chaos.questions import Reference
from tests.chaos.records import End, Ending, Fault, Kind, Request

# How long after the repair a fault may still be felt: services look for Redis again after 5 s at the latest.
AFTER_S: Final = 6.0
_REDIS: Final = frozenset({Kind.RESTART_REDIS, Kind.EMPTY_REDIS, Kind.LOSE_REPLIES, Kind.REFUSE})
# Which faults may end a request so. Others have to be survived without a word.
_EXCUSES: Final[Mapping[Ending, frozenset[Kind]]] = {
    Ending.FAILED: frozenset({Kind.EMPTY_REDIS}),
    Ending.CUT: frozenset({Kind.KILL_GATEWAY}),
    Ending.UNREACHABLE: frozenset({Kind.KILL_GATEWAY}),
    Ending.REFUSED: _REDIS,
}
_OF_ITS_GATEWAY: Final = frozenset({Kind.KILL_GATEWAY})


def overlaps(request: Request, fault: Fault) -> bool:
    """Whether the request may have felt the fault."""
    elsewhere = fault.kind in _OF_ITS_GATEWAY and fault.target != request.gateway
    return not elsewhere and fault.began <= request.ended and request.began <= fault.ended + AFTER_S


def faulty(requests: Sequence[Request], faults: Sequence[Fault], right: Sequence[Reference]) -> list[str]:
    """Every request that got what it must not get."""
    lines = []
    for request in requests:
        felt = [fault for fault in faults if overlaps(request, fault)]
        lines += [f"{_name(request)}: {why}" for why in _wrong(request, felt, right[request.question])]
    return lines


def deaths(ends: Sequence[End], faults: Sequence[Fault]) -> list[str]:
    """Every process that should not have ended: only one that starts while Redis is away may give up."""
    return [
        f"{end.name} ended by itself with {end.status}: {end.said}"
        for end in ends
        if end.status != command_line.BAD_OPTION
        or not any(fault.kind in _REDIS and fault.began <= end.moment <= fault.ended + AFTER_S for fault in faults)
    ]


def _wrong(request: Request, felt: Sequence[Fault], reference: Reference) -> list[str]:
    lines = []
    tokens = tuple(request.tokens)
    if tokens != reference.tokens[: len(tokens)]:
        lines.append(f"got {tokens} where the reference is {reference.tokens}")
    if request.after_end:
        lines.append(f"{request.after_end} frames behind the end")
    match request.ending:
        case Ending.FINISHED:
            if len(tokens) != len(reference.tokens):
                lines.append(f"finished after {len(tokens)} of {len(reference.tokens)} tokens")
            if (request.finishes, request.errors, request.marks) != ([reference.finish], [], 1):
                lines.append(f"ended by {request.finishes}, {request.errors} and {request.marks} end marks")
        case Ending.FAILED:
            if len(request.errors) != 1 or request.finishes or request.marks != 1:
                lines.append(f"ended by {request.finishes}, {request.errors} and {request.marks} end marks")
        case Ending.CUT:
            if request.finishes or request.errors:
                lines.append(f"cut after {request.finishes} and {request.errors}")
        case Ending.REFUSED:
            if request.status not in (429, 503) or not request.retry_after:
                lines.append(f"refused with {request.status}, Retry-After: {request.retry_after}")
        case Ending.STUCK:
            lines.append("never ended")
    excuses = _EXCUSES.get(request.ending)
    if excuses is not None and not any(fault.kind in excuses for fault in felt):
        what = ", ".join(fault.kind for fault in felt) or "nothing"
        lines.append(f"{request.ending} ({request.errors or request.status or 'no status'}) amid {what}")
    return lines


def _name(request: Request) -> str:
    return f"question {request.question} on {request.gateway} at {request.began:.1f} to {request.ended:.1f} s"


def recovery_s(fault: Fault, requests: Sequence[Request]) -> float:
    """How long it took until every stream that flowed when the fault struck had a further token or its end.

    0 if none flowed. Streams that their gateway took along are not counted.
    """
    waits = [0.0]
    for request in requests:
        if not request.arrivals or not request.arrivals[0] <= fault.began < request.ended:
            continue
        if request.ending in (Ending.CUT, Ending.LEFT):
            continue
        following = next((moment for moment in request.arrivals if moment > fault.began), math.inf)
        waits.append(min(following, request.ended) - fault.began)
    return max(waits)


def endings(fault: Fault, requests: Sequence[Request]) -> Counter[Ending]:
    """How the requests ended that were under way when the fault struck."""
    return Counter(request.ending for request in requests if request.began <= fault.began < request.ended)
