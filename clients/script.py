"""What the stand-in for a model says to a prompt. Pure.

A prompt tells itself what is to be answered, so that one model serves every client:

    [[call NAME]]argument=value; other=7[[end]]   call that tool, if it is offered, and quote its result afterwards
    [[say]]text[[end]]                            say that

A tool's result is known by a word that is in no prompt before a tool ran: `works-` and the product of 6 and 7, which
somebody has to compute.
"""

import json
import re
from typing import Final

GREETING: Final = "Grüße from the gateway 🙂, all is well."
QUOTE: Final = "The tool said: "
RESULT: Final = "works-42"
SHELL: Final = "echo works-$((6*7))"  # a shell command whose output is the result
ASK: Final = "Please use a tool."

_CALL: Final = re.compile(r"\[\[call (\w+)\]\](.*?)\[\[end\]\]", re.DOTALL)
_SAY: Final = re.compile(r"\[\[say\]\](.*?)\[\[end\]\]", re.DOTALL)


def call(name: str, **arguments: object) -> str:
    """A user's message that makes the model call a tool."""
    # No quotes: OpenCode escapes them in what it is given on the command line.
    return f"{ASK} [[call {name}]]{'; '.join(f'{key}={value}' for key, value in arguments.items())}[[end]]"


def say(text: str) -> str:
    """A user's message that makes the model say `text`."""
    return f"[[say]]{text}[[end]]"


def answer(prompt: str) -> str:
    """What the model says."""
    called, said = _last(_CALL, prompt), _last(_SAY, prompt)
    if called and RESULT in prompt:
        return f"{QUOTE}{RESULT}"
    if called and f'"{called[1]}"' in prompt:
        return f"<tool_call>\n{json.dumps({'name': called[1], 'arguments': _arguments(called[2])})}\n</tool_call>"
    return said[1] if said else GREETING


def _arguments(text: str) -> dict[str, str | int]:
    pairs = (part.strip().partition("=") for part in text.split(";"))
    return {key: int(value) if value.isdigit() else value for key, _, value in pairs}


def _last(pattern: "re.Pattern[str]", text: str) -> "re.Match[str] | None":
    found = None
    for found in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return found
