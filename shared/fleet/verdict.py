"""One sentence for people: what speculation is worth to a fleet now, or what it lacks. Pure."""

from collections import Counter

from shared.fleet.fleet_values import FleetStatus
from shared.law.payoff import NO_DRAFT, NO_DRAFTER, SWITCHED_OFF, WORTH


def verdict(fleet: FleetStatus) -> str:
    if not fleet.verifiers:
        return "Nothing is served: no verifier is connected."
    helping = {row.id for row in fleet.drafters if row.refused is None}
    who = f"{len(helping)} drafter{'' if len(helping) == 1 else 's'}"
    speedup = fleet.totals.speedup
    if speedup is None:
        lack = "" if helping else f" Answers will be decoded plainly: {_missing(fleet)}."
        return f"Ready{f' with {who}' if helping else ''}; nothing has been asked yet.{lack}"
    if helping and speedup >= WORTH:
        return f"{who}: {speedup:.1f}× plain decoding{'' if fleet.requests else ', when last asked'}."
    return f"Not faster than plain decoding: {_reason(fleet, helping)}."


def _reason(fleet: FleetStatus, helping: set[str]) -> str:
    if not helping:
        return _missing(fleet)
    if all(row.speculation == "off" for row in fleet.verifiers):
        return SWITCHED_OFF
    reasons = Counter(row.reason for row in fleet.requests if row.reason and row.offset)
    if reasons:
        return reasons.most_common(1)[0][0]
    return next((row.payoff.reason for row in fleet.verifiers if row.payoff.reason), NO_DRAFT)


def _missing(fleet: FleetStatus) -> str:
    refused = [row.refused for row in fleet.drafters if row.refused is not None]
    return f"the verifier refuses every drafter ({refused[0]})" if refused else NO_DRAFTER
