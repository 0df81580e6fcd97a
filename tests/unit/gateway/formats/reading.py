"""Formats by name, and answers read by them in any cuts."""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Final

from services.gateway.formats.format import Format
from services.gateway.formats.harmony import HarmonyFormat
from services.gateway.formats.hermes import Hermes
from services.gateway.formats.lark import TokenOf
from services.gateway.formats.llama3 import Llama3
from services.gateway.formats.mistral import Mistral
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought, merged
from services.gateway.formats.qwen_xml import QwenXml
from services.gateway.formats.sink import NewId
from services.gateway.formats.syntax import CallSyntax
from services.gateway.formats.tagged import TaggedFormat
from services.gateway.formats.thinking import ThinkingStyle, thinking_style
from services.gateway.requests.types import Tool, ToolChoice

WEATHER: Final = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
            "places": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city"],
    },
)
TOOLS: Final = (WEATHER, Tool(name="go"), Tool(name="go_on", parameters={"properties": {}}))
AUTO: Final = ToolChoice()


def no_tokens(text: str) -> int | None:
    return None


def numbered() -> NewId:
    numbers = itertools.count()
    return lambda: f"id{next(numbers)}"


def _tagged(syntax: CallSyntax, thinking: str) -> Callable[[TokenOf], Format]:
    return lambda token: TaggedFormat(syntax, thinking_style(thinking), token, new_id=numbered())


FORMATS: Final[dict[str, Callable[[TokenOf], Format]]] = {
    "hermes": _tagged(Hermes(), "<think>"),
    "xml": _tagged(QwenXml(), "<think>"),
    "seed": _tagged(QwenXml("seed:"), "<seed:think>"),
    "llama3": _tagged(Llama3(), ""),
    "mistral-list": _tagged(Mistral(lists=True), ""),
    "mistral": _tagged(Mistral(lists=False), "[THINK]"),
    "harmony": lambda token: HarmonyFormat(ThinkingStyle(), token, numbered()),
}


def read(
    name: str,
    text: str,
    cuts: Sequence[int] = (),
    *,
    tools: Sequence[Tool] = TOOLS,
    choice: ToolChoice = AUTO,
    opened: bool = False,
) -> tuple[Part, ...]:
    """The answer's parts, neighbours of a kind joined, with the text pushed in pieces that end at `cuts`."""
    parser = FORMATS[name](no_tokens).parser(tools, choice, opened=opened)
    parts: list[Part] = []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(text)]):
        parts += parser.push(text[start:end])
    return merged([*parts, *parser.finish()])


def told(parts: Sequence[Part]) -> list[object]:
    """Parts as short as they can be said: ("text", …), ("thought", …), and (name, arguments) of complete calls."""
    said: list[object] = []
    for part in parts:
        match part:
            case Text(text):
                said.append(("text", text))
            case Thought(text):
                said.append(("thought", text))
            case CallStart(index, _, name):
                said.append(
                    (name, "".join(p.fragment for p in parts if isinstance(p, CallArguments) and p.index == index))
                )
                if CallEnd(index) not in parts:
                    said.append("cut off")
            case _:
                pass
    return said


def arguments(parts: Sequence[Part]) -> list[tuple[str, object]]:
    """Names and arguments of the complete calls, whose indices and ids must be in order."""
    starts = [part for part in parts if isinstance(part, CallStart)]
    assert [start.index for start in starts] == list(range(len(starts)))
    assert len({start.id for start in starts}) == len(starts)
    calls: list[tuple[str, object]] = []
    for start in starts:
        if CallEnd(start.index) in parts:
            text = "".join(p.fragment for p in parts if isinstance(p, CallArguments) and p.index == start.index)
            calls.append((start.name, json.loads(text)))
    return calls
