"""Chat messages to prompt text, exactly as the model's own Jinja template says, in a sandbox.

The environment is transformers': trimmed blocks, loop controls, `tojson` without HTML escapes, `raise_exception`,
`strftime_now` and the `generation` tag.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser

from services.gateway.prompts import sandbox
from services.gateway.requests.types import RESERVED


class TemplateError(ValueError):
    """The template refused the messages; the message is the template's own where it gave one."""


class _Refused(Exception):
    """An error that the template itself raised."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; for inference it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> None:
    raise _Refused(str(message))


class ChatTemplate:
    """A compiled template. Rendering is a pure function of its arguments and, if the template asks, of `now`."""

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", now: Callable[[], datetime] = datetime.now
    ) -> None:
        """Raises `TemplateError` if the source is not a template."""
        environment = sandbox.Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        environment.filters["tojson"] = sandbox.bounded("tojson", _tojson)
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._variables = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, SyntaxError, RecursionError, ValueError) as error:
            raise TemplateError(f"the model's chat template does not compile: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> str:
        """The prompt up to where the assistant's answer begins. Raises `TemplateError`."""
        try:
            return sandbox.render(
                self._template,
                {
                    **{name: value for name, value in (variables or {}).items() if name not in RESERVED},
                    **self._variables,
                    "messages": [dict(message) for message in messages],
                    "tools": [dict(tool) for tool in tools] or None,
                    "documents": None,
                    "add_generation_prompt": True,
                },
            )
        except _Refused as error:
            raise TemplateError(str(error)) from error
        # Templates add strings to any value of a message, so a type mismatch is an error of the messages.
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise TemplateError(f"the model's chat template cannot render these messages: {error}") from error
