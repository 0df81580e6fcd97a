"""Turns a conversation into a model's prompt: text by its chat template, and kept turns as their tokens.

A turn that made calls enters the prompt as the tokens that the target itself wrote, if that is safe: if the template
renders the turn as plain text in exactly the place of its calls. Then the prompt begins with what the target has in its
cache, whatever the spaces in the calls' JSON.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.gateway.prompts.capabilities import probe
from services.gateway.prompts.conversation import adapt, renamed
from services.gateway.prompts.template import ChatTemplate, TemplateError
from services.gateway.requests.types import Conversation, Tool
from services.gateway.storage.kept_turns import KeptTurn

Segment = str | tuple[int, ...]


class Renderer:
    """Renders for one chat template."""

    def __init__(
        self,
        template: ChatTemplate,
        call_id: Callable[[str], str],
        instructions: Callable[[Sequence[Tool]], str],
        *,
        native: bool = True,
    ) -> None:
        """`call_id` gives ids the shape that the template wants; `instructions` explain tools where the template knows
        none, or has calls written in a format without a parser here (`native` false)."""
        self._template = template
        able = probe(template)
        self._able = able if native else replace(able, tools=False)
        self._call_id = call_id
        self._instructions = instructions

    def render(
        self,
        conversation: Conversation,
        variables: Mapping[str, object],
        tools: Sequence[Tool],
        turns: Mapping[str, KeptTurn],
    ) -> list[Segment]:
        """The prompt's pieces, in order. Raises `TemplateError`."""
        messages = list(conversation.messages)
        beginning = str(messages.pop()["content"]) if conversation.continues else ""
        kept = {index: turns[call] for index, call in enumerate(map(first_call, messages)) if call in turns}
        kept = {index: turn for index, turn in kept.items() if turn.tells(messages[index])}
        text = self._text(messages, variables, tools)
        pieces: list[Segment] = self._with_turns(text, messages, kept, variables, tools) if kept else [text]
        return [*pieces, beginning] if beginning else pieces

    def _text(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, object], tools: Sequence[Tool]
    ) -> str:
        native = tools if self._able.tools else ()
        preamble = self._instructions(tools) if tools and not native else ""
        adapted = adapt(renamed(messages, self._call_id), self._able, preamble)
        return self._template.render(adapted, variables, [tool.openai() for tool in native])

    def _with_turns(
        self,
        text: str,
        messages: Sequence[Mapping[str, Any]],
        kept: Mapping[int, KeptTurn],
        variables: Mapping[str, object],
        tools: Sequence[Tool],
    ) -> list[Segment]:
        """`text` with the kept turns' tokens in their places; unchanged if the places are not certain."""
        marks = {index: f"turn-{secrets.token_hex(16)}" for index in kept}
        marked = [
            {**_without_calls(message), "content": marks[index]} if index in marks else message
            for index, message in enumerate(messages)
        ]
        try:
            frame = re.split("|".join(marks.values()), self._text(marked, variables, tools))
        except TemplateError:
            return [text]
        if len(frame) != len(kept) + 1 or not _framed(text, frame):
            return [text]
        pieces: list[Segment] = [frame[0]]
        for turn, following in zip(kept.values(), frame[1:], strict=True):
            pieces += [turn.tokens, following]
        return pieces


def first_call(message: Mapping[str, Any]) -> str:
    """The id of the message's first call, "" if it makes none."""
    calls = message.get("tool_calls")
    return str(calls[0].get("id", "")) if calls else ""


def _without_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "tool_calls"}


def _framed(text: str, frame: Sequence[str]) -> bool:
    """Whether `text` is the frame's pieces in order, from its beginning to its end, with something between them."""
    if not text.startswith(frame[0]) or not text.endswith(frame[-1]):
        return False
    position = len(frame[0])
    for piece in frame[1:-1]:
        position = text.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return position <= len(text) - len(frame[-1])
