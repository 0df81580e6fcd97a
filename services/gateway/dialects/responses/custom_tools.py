"""Custom tools: their input is one free text, or a text that a grammar describes. Pure.

The model knows such a tool as a function with one string, and its call's arguments are read back as the text
(https://platform.openai.com/docs/guides/function-calling#custom-tools).
"""

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from services.gateway.formats.json_text import StringText
from services.gateway.requests.types import INPUT, Tool
from shared.law.grammar import lark_of_regex

_SCHEMA: Final = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
_BEGIN: Final = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')


_SYNTAXES: Final = {"lark": "Lark grammar", "regex": "regular expression"}


class _Grammar(BaseModel):
    syntax: Literal["lark", "regex"]
    definition: str = Field(min_length=1)

    def lark(self) -> str:
        return self.definition if self.syntax == "lark" else lark_of_regex(self.definition)


def _grammar(value: object) -> object:
    """The grammar in a tool's `format`, None for free text; a client may have nested it as in chat completions."""
    if not isinstance(value, dict) or value.get("type") == "grammar":
        return value.get("grammar", value) if isinstance(value, dict) else value
    if value.get("type") == "text":
        return None
    raise PydanticCustomError("format", 'must have the type "text" or "grammar"')


class CustomTool(BaseModel):
    """One of `tools`."""

    name: str = Field(min_length=1)
    description: str | None = None
    format: Annotated[_Grammar | None, BeforeValidator(_grammar)] = None

    def tool(self, name: str) -> Tool:
        """As the model knows it: the description says what the input must be."""
        description, asked = self.description or "", self.format
        if asked is None:
            return Tool(name=name, description=description, parameters=_SCHEMA)
        rule = f"'{INPUT}' must match this {_SYNTAXES[asked.syntax]}:\n{asked.definition}"
        return Tool(
            name=name, description=f"{description}\n\n{rule}".lstrip(), parameters=_SCHEMA, grammar=asked.lark()
        )


class InputText:
    """The input of one call, out of its arguments as they come."""

    def __init__(self) -> None:
        self._string = StringText()
        self._head = ""
        self._begun = False

    def push(self, fragment: str) -> str:
        """The characters that are now certain."""
        if not self._begun:
            self._head += fragment
            found = _BEGIN.match(self._head)
            if found is None:
                return ""
            self._begun, fragment = True, self._head[found.end() :]
        return self._string.push(fragment)[0]
