"""One sentence for people: what speculation is worth to a fleet now, or what it lacks. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shared.law.payoff import NO_DRAFT, NO_DRAFTER, SWITCHED_OFF, WORTH

_Rows = Sequence[Mapping[str, Any]]


def verdict(totals: Mapping[str, Any], verifiers: _Rows, drafters: _Rows, requests: _Rows) -> str:
    """The sentence, from the values that `shared.fleet.fleet_values.describe` gives."""
    if not verifiers:
        return "Nothing is served: no verifier is connected."
    helping = {row["id"] for row in drafters if row["refused"] is None}
    who = _count(len(helping), "drafter")
    speedup = totals["speedup"]
    if speedup is None:
        lack = "" if helping else f" Answers will be decoded plainly: {_missing(drafters)}."
        return f"Ready{f' with {who}' if helping else ''}; nothing has been asked yet.{lack}"
    if helping and speedup >= WORTH:
        return f"{who}: {speedup:.1f}× plain decoding{'' if requests else ', when last asked'}."
    return f"Not faster than plain decoding: {_reason(verifiers, drafters, requests, helping)}."


def _reason(verifiers: _Rows, drafters: _Rows, requests: _Rows, helping: set[str]) -> str:
    if not helping:
        return _missing(drafters)
    if all(row["speculation"] == "off" for row in verifiers):
        return SWITCHED_OFF
    reasons = Counter(row["reason"] for row in requests if row["reason"] and row["offset"])
    if reasons:
        return str(reasons.most_common(1)[0][0])
    return next((str(row["payoff"]["reason"]) for row in verifiers if row["payoff"]["reason"]), NO_DRAFT)


def _missing(drafters: _Rows) -> str:
    refused = [row["refused"] for row in drafters if row["refused"] is not None]
    return f"the verifier refuses every drafter ({refused[0]})" if refused else NO_DRAFTER


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
