"""Finds the format that a model writes from its chat template."""

from services.gateway.formats.format import Format
from services.gateway.formats.harmony import CHANNEL, MESSAGE, HarmonyFormat
from services.gateway.formats.hermes import Hermes
from services.gateway.formats.lark import TokenOf
from services.gateway.formats.llama3 import Llama3
from services.gateway.formats.mistral import Mistral
from services.gateway.formats.qwen_xml import QwenXml
from services.gateway.formats.syntax import CallSyntax
from services.gateway.formats.tagged import TaggedFormat
from services.gateway.formats.thinking import thinking_style


def detect(template: str | None, token: TokenOf, tools: bool) -> Format:
    """The format whose marks the template holds. If the template knows no tools (`tools` false), or has calls written
    in a format without a parser here, the format explains the tools itself. `token` finds the control token with
    exactly that text."""
    if template is None:
        return Format()
    thinking = thinking_style(template)
    if CHANNEL in template and MESSAGE in template:
        return HarmonyFormat(thinking, token)
    syntax = _syntax(template) if tools else None
    if syntax is None:
        return TaggedFormat(Hermes(), thinking, token, takes_tools=False)
    return TaggedFormat(syntax, thinking, token, short_ids=isinstance(syntax, Mistral))


def _syntax(template: str) -> CallSyntax | None:
    if "<function=" in template and "<parameter=" in template:
        return QwenXml("seed:" if "<seed:tool_call>" in template else "")
    if "[TOOL_CALLS]" in template:
        return Mistral(lists="[ARGS]" not in template)
    if "<tool_call>" in template and "<arg_key>" not in template:  # GLM's tags have the same name
        return Hermes()
    if "<|python_tag|>" in template or ("ipython" in template and '"parameters"' in template):
        return Llama3()
    return None
