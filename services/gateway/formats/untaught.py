"""Tools for models whose chat template knows none, explained in words: the model is told to write calls in Hermes'
form."""

import json
from collections.abc import Sequence

from services.gateway.requests.types import Tool


def instructions(tools: Sequence[Tool]) -> str:
    """What the system message has to say for the model to call these; "" if there are none."""
    if not tools:
        return ""
    listed = "\n".join(json.dumps(tool.openai()["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You can call these functions:\n<tools>\n{listed}\n</tools>\n\n"
        "To call one, answer with its name and its arguments in this form, once for each call:\n"
        '<tool_call>\n{"name": "function name", "arguments": {"parameter": "value"}}\n</tool_call>\n\n'
        "What it returned is then told to you between <tool_response> and </tool_response>. "
        "Answer in plain text if no function helps."
    )
