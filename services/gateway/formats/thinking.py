"""How a model thinks, read from its chat template: the marks around thinking, and the template's switches."""

import re
from dataclasses import dataclass
from typing import Final

from services.gateway.requests.types import Reasoning


@dataclass(frozen=True, slots=True)
class ThinkingSpan:
    """The texts around a model's thinking, and what to write to make it stop (it ends with `end`)."""

    start: str
    end: str
    close: str


# A model that is told to stop thinking ends its line first, as it would by itself.
SPANS: Final = (
    ThinkingSpan("[THINK]", "[/THINK]", "[/THINK]"),
    ThinkingSpan("<seed:think>", "</seed:think>", "\n</seed:think>"),
    ThinkingSpan("<think>", "</think>", "\n</think>"),
)
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_COMMON: Final = ("low", "medium", "high")
_SWITCHES: Final = ("enable_thinking", "thinking")
_EFFORT: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStyle:
    """`switches` are the template's variables that turn thinking on, `efforts` its words for how much to think."""

    span: ThinkingSpan | None = None
    switches: tuple[str, ...] = ()
    efforts: tuple[str, ...] = ()
    takes_budget: bool = False

    def variables(self, reasoning: Reasoning) -> dict[str, object]:
        """The template variables for thinking as asked; none if the request asks for nothing."""
        wanted = _wanted(reasoning)
        variables: dict[str, object] = {}
        if wanted is not None:
            variables.update(dict.fromkeys(self.switches, wanted))
        effort = reasoning.effort if wanted is not False else "none"
        if effort is not None and self.efforts:
            variables[_EFFORT] = _nearest(effort, self.efforts)
        if self.takes_budget and (wanted is False or reasoning.budget is not None):
            variables[_BUDGET] = 0 if wanted is False else reasoning.budget
        return variables

    def budget(self, reasoning: Reasoning) -> int | None:
        """The most tokens that thinking may take; None: as many as it likes.

        If the template cannot turn thinking off, the budget stops it where it begins.
        """
        deaf = not self.switches and "none" not in self.efforts and not self.takes_budget
        return 0 if _wanted(reasoning) is False and deaf else reasoning.budget


def thinking_style(template: str) -> ThinkingStyle:
    """The style that the template's text reveals."""
    span = next((span for span in SPANS if span.start in template or span.end in template), None)
    return ThinkingStyle(
        span=span,
        switches=tuple(name for name in _SWITCHES if _reads(template, name)),
        efforts=_efforts(template) if _reads(template, _EFFORT) else (),
        takes_budget=_reads(template, _BUDGET),
    )


def _reads(template: str, name: str) -> bool:
    """Whether the template uses a variable of that name inside a statement or expression."""
    return re.search(rf"\{{[%{{](?:(?![%}}]\}}).)*(?<![\w.'\"]){name}(?![\w'\"])", template, re.DOTALL) is not None


def _efforts(template: str) -> tuple[str, ...]:
    quoted = tuple(word for word in EFFORTS if re.search(rf"['\"]{word}['\"]", template))
    return quoted if len(quoted) > 1 else _COMMON


def _nearest(effort: str, known: tuple[str, ...]) -> str:
    """The known word closest to it; an unknown word is passed on as it is."""
    if effort in known or effort not in EFFORTS:
        return effort
    place = EFFORTS.index(effort)
    some = [word for word in known if word != "none"]  # little thinking is still thinking
    return min(some, key=lambda word: abs(EFFORTS.index(word) - place))


def _wanted(reasoning: Reasoning) -> bool | None:
    """Whether to think, from the switch or from the amount."""
    if reasoning.enabled is not None:
        return reasoning.enabled
    if reasoning.effort == "none" or reasoning.budget == 0:
        return False
    return True if reasoning.effort is not None or reasoning.budget is not None else None
