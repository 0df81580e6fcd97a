"""Every command of `draftmesh` with its parameters, the services' own among them, as the code declares them."""

import importlib
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, get_args, get_origin

from typer.main import get_command

from services.launcher.cli import app
from shared.settings import command_line
from shared.settings.command_settings import PROGRAM, CommandSettings

SERVICES: Final = ("gateway", "verifier", "drafter")

Parser = Any  # typer's own copy of click has no public types
Parameter = Any


def commands() -> dict[str, Parser]:
    """The parser of every command, by the words that call it, in the order of `--help`."""
    root = get_command(app)
    CommandSettings(root, PROGRAM).attach()
    return dict(_walk(root, PROGRAM))


def _walk(parser: Parser, name: str) -> Iterator[tuple[str, Parser]]:
    below = getattr(parser, "commands", {})
    if not below or name == PROGRAM or parser.invoke_without_command:
        yield name, parser
    for word, command in below.items():
        if word in SERVICES:
            command = service(word)
            CommandSettings(command, f"{name} {word}").attach()
        yield from _walk(command, f"{name} {word}")


def service(name: str) -> Parser:
    """The parser of a service, which the launcher's own command only becomes."""
    return get_command(command_line.command(importlib.import_module(f"services.{name}.__main__").main))


def options(parser: Parser) -> list[Parameter]:
    """Its options, without `--help`."""
    return [
        parameter
        for parameter in parser.params
        if parameter.param_type_name == "option" and "--help" not in parameter.opts and not parameter.hidden
    ]


def arguments(parser: Parser) -> list[Parameter]:
    """What it takes beside options."""
    return [parameter for parameter in parser.params if parameter.param_type_name == "argument"]


def allowed(parameter: Parameter) -> str:
    """What its values may be, for people; empty for any text."""
    kind = _kind(parameter.type_descriptor.annotation)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(member.value) for member in kind)
    name = {int: "whole number", float: "number", bool: "yes or no"}.get(kind, "")
    low, high = parameter.min, parameter.max
    bounds = [f"from {low:g}"] if low is not None else []
    bounds += [f"to {high:g}"] if high is not None else []
    return " ".join([name, *bounds])


def default(parameter: Parameter) -> str:
    """Its default as one would write it; empty where there is none."""
    value = parameter.default
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(_written(one) for one in values if one is not None and one is not False and one != "")


def _written(value: object) -> str:
    return "yes" if value is True else str(value.value if isinstance(value, Enum) else value)


def _kind(annotation: Any) -> Any:
    """The type of one value: of a list its items', of what may be absent the other."""
    if get_origin(annotation) is None:
        return annotation
    return next((_kind(inner) for inner in get_args(annotation) if inner is not type(None)), annotation)
