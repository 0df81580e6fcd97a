"""Finds what a chat template supports by rendering small probes; no other way is reliable. Pure.

Idea: llama.cpp's minja renders probes too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.prompts.template import ChatTemplate, TemplateError

_USER: Final = {"role": "user", "content": "probe-user"}
_ANSWER: Final = {"role": "assistant", "content": "probe-answer"}
_SYSTEM: Final = {"role": "system", "content": "probe-system"}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "probe",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]},
    },
}
_CALL_ID: Final = "probeid00"  # nine letters and digits: the only shape that Mistral's templates accept


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`typed`: content must be a list of parts. `system`: a first system message is rendered; `system_anywhere`: also
    later ones, in place. `tools`: definitions, calls and results are rendered; `text_arguments`: with a call's
    arguments as JSON text instead of an object."""

    typed: bool = False
    system: bool = True
    system_anywhere: bool = True
    tools: bool = True
    text_arguments: bool = False


def probe(template: ChatTemplate) -> Capabilities:
    """The template's capabilities; `adapt` changes messages to fit them."""
    parts = not _shows(template, [_USER], "probe-user") and _shows(template, [typed(_USER)], "probe-user")
    turn = typed if parts else dict
    system, user, answer = turn(_SYSTEM), turn(_USER), turn(_ANSWER)
    mixed = [system, user, system, answer, system, user]
    of_objects = _calls(template, turn, {"probe_key": "probe-value"})
    of_text = not of_objects and _calls(template, turn, '{"probe_key": "probe-value"}')
    return Capabilities(
        typed=parts,
        system=_shows(template, [system, user], "probe-system"),
        system_anywhere=_shows(template, mixed, "probe-system", times=3),
        tools=(of_objects or of_text) and _shows(template, [user], "probe_tool", tools=[_TOOL]),
        text_arguments=of_text,
    )


def fault(template: ChatTemplate) -> str:
    """Why the template cannot render a single message of a user, in any form; empty if it can."""
    reason = ""
    for turn in (dict, typed):
        try:
            template.render([turn(_USER)])
        except TemplateError as error:
            reason = reason or str(error)
        else:
            return ""
    return reason


def typed(message: Mapping[str, object]) -> dict[str, object]:
    """The message with its content as a list of parts."""
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _calls(template: ChatTemplate, turn: Any, arguments: object) -> bool:
    """Whether a call with such arguments and its result are rendered, and the arguments not as Python would print."""
    function = {"name": "probe_tool", "arguments": arguments}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": _CALL_ID, "type": "function", "function": function}],
    }
    result = {"role": "tool", "content": "probe-result", "tool_call_id": _CALL_ID, "name": "probe_tool"}
    text = _render(template, [turn(_USER), call, turn(result)], [_TOOL])
    rendered = text.rpartition("probe-user")[2]
    wanted = ("probe_tool", "probe_key", "probe-value", "probe-result")
    return all(word in rendered for word in wanted) and "'probe_key'" not in rendered


def _shows(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, object]],
    word: str,
    times: int = 1,
    tools: Sequence[Mapping[str, object]] = (),
) -> bool:
    return _render(template, messages, tools).count(word) >= times


def _render(
    template: ChatTemplate, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()
) -> str:
    try:
        return template.render(messages, tools=tools)
    except TemplateError:
        return ""
