"""Adapts a conversation to a chat template: system messages where it allows them, calls and results as it knows them.

Pure. A conversation that grows keeps its beginning, so that the target's prefix cache stays useful.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from services.gateway.prompts.capabilities import Capabilities, typed

Message = Mapping[str, Any]
_PARAGRAPH = "\n\n"


def adapt(messages: Sequence[Message], able: Capabilities, preamble: str = "") -> list[dict[str, Any]]:
    """The messages as a template with these capabilities can render them; `preamble` joins the system message."""
    turns = [_named(message) for message in messages]
    if not able.tools:
        turns = _without_tools(turns)
    turns = _lead(turns, preamble)
    if not able.system_anywhere:
        turns = _fold(turns)
    if not able.system:
        turns = _unlead(turns)
    turns = [_with_calls(turn, able) for turn in turns]
    return [typed(turn) for turn in turns] if able.typed else turns


def _named(message: Message) -> dict[str, Any]:
    """OpenAI's newer and older role names as templates know them."""
    role = {"developer": "system", "function": "tool"}.get(message["role"], message["role"])
    return {**message, "role": role}


def _without_tools(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls and results as text, in the form that models without tools are told to use.

    Successive results and the user's text after them are one turn, because many templates want roles to alternate.
    """
    written: list[dict[str, Any]] = []
    after_result = False
    for turn in turns:
        is_result = turn["role"] == "tool"
        if is_result:
            turn = {"role": "user", "content": f"<tool_response>\n{turn['content']}\n</tool_response>"}
        elif turn.get("tool_calls"):
            calls = [_written(call["function"]) for call in turn["tool_calls"]]
            others = {name: value for name, value in turn.items() if name != "tool_calls"}
            turn = {**others, "content": "\n".join(filter(None, [turn["content"], *calls]))}
        if after_result and turn["role"] == "user":
            written[-1] = {**written[-1], "content": f"{written[-1]['content']}\n{turn['content']}"}
        else:
            written.append(turn)
        after_result = is_result
    return written


def _written(function: Message) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {function["arguments"]}}}\n</tool_call>'


def _lead(turns: list[dict[str, Any]], preamble: str) -> list[dict[str, Any]]:
    """All leading system messages as one."""
    leading = list(takewhile(lambda turn: turn["role"] == "system", turns))
    text = _PARAGRAPH.join(filter(None, [*(turn["content"] for turn in leading), preamble]))
    rest = turns[len(leading) :]
    return [{"role": "system", "content": text}, *rest] if leading or preamble else rest


def _fold(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Later system messages into the user's text or the tool result before them, else into the next one.

    Adds no turn if one follows, and none between a call and its result. Idea: vLLM's Anthropic front end.
    """
    folded: list[dict[str, Any]] = []
    waiting: list[str] = []
    for index, turn in enumerate(turns):
        last = folded[-1] if folded else None
        if turn["role"] == "system" and index:
            if last is not None and last["role"] in ("user", "tool"):
                folded[-1] = {**last, "content": _PARAGRAPH.join(filter(None, [last["content"], turn["content"]]))}
            else:
                waiting.append(turn["content"])
            continue
        if waiting and turn["role"] in ("user", "tool"):
            turn = {**turn, "content": _PARAGRAPH.join(filter(None, [*waiting, turn["content"]]))}
            waiting = []
        folded.append(turn)
    if waiting:
        folded.append({"role": "user", "content": _PARAGRAPH.join(waiting)})
    return folded


def _unlead(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first system message as the beginning of the first user's text."""
    if not turns or turns[0]["role"] != "system":
        return turns
    system, *rest = turns
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": system["content"]}, *rest]
    return [{**rest[0], "content": _PARAGRAPH.join(filter(None, [system["content"], rest[0]["content"]]))}, *rest[1:]]


def _with_calls(turn: dict[str, Any], able: Capabilities) -> dict[str, Any]:
    calls = turn.get("tool_calls")
    return {**turn, "tool_calls": [_call(call, able) for call in calls]} if calls else turn


def _call(call: Message, able: Capabilities) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if not able.text_arguments:
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"arguments": arguments}  # arguments of a call that was cut off: templates need an object
    return {**call, "function": {**function, "arguments": arguments}}


def renamed(messages: Sequence[Message], call_id: Callable[[str], str]) -> list[dict[str, Any]]:
    """The messages with every call's id in the shape that the template insists on."""
    result = []
    for message in messages:
        turn = dict(message)
        if turn.get("tool_calls"):
            turn["tool_calls"] = [{**call, "id": call_id(str(call.get("id", "")))} for call in turn["tool_calls"]]
        if turn.get("tool_call_id"):
            turn["tool_call_id"] = call_id(str(turn["tool_call_id"]))
        result.append(turn)
    return result
