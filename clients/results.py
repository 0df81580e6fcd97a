"""What came of the trials, as a table in Markdown. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BEGIN: Final = "<!-- results: written by make clients -->"
END: Final = "<!-- end of results -->"
_NONE: Final = "–"
_CELL: Final = 160  # characters of a reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a task went: passed, failed, or not tried, with the reason for the last two."""

    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        word = {True: "yes", False: "**no**", None: _NONE}[self.passed]
        return f"{word}: {_escaped(self.reason)}" if self.reason else word


NOT_TRIED: Final = Verdict(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A client's verdicts; `opening` is how many tokens it sent with "hi", 0 if that is not known."""

    name: str
    version: str
    api: str
    text: Verdict
    tools: Verdict
    real: Verdict
    opening: int
    remark: str = ""

    @property
    def failed(self) -> bool:
        return any(verdict.passed is False for verdict in (self.text, self.tools, self.real))


def table(results: Sequence[Result], day: str, system: str) -> str:
    """The results with the day they are of."""
    head = ("client", "version", "speaks", "text", "tools", "default model", 'tokens with "hi"', "remarks")
    rows = [head, ("---",) * len(head)]
    for result in results:
        opening = f"{result.opening:,}" if result.opening else _NONE
        verdicts = (str(result.text), str(result.tools), str(result.real))
        rows.append((result.name, result.version, f"`{result.api}`", *verdicts, opening, result.remark))
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"Of {day}, {system}:\n\n{lines}\n"


def replaced(document: str, results: str) -> str:
    """The document with new results between the marks. Raises `ValueError` if it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no place for results: it lies between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{results}\n{END}{after}"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:_CELL]
