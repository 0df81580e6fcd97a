"""The services' own command lines, to hold what starts them against."""

import importlib
from collections.abc import Sequence
from typing import Any

import pytest
from typer.main import get_command

from shared import usage

SERVICES = ("gateway", "verifier", "drafter")


def parser(service: str) -> Any:
    """The command-line parser of a service's own entry point."""
    return get_command(usage.command(importlib.import_module(f"services.{service}.__main__").main))


def variables(command: Any) -> dict[str, Any]:
    """The options of a command by their environment twins."""
    return {parameter.envvar: parameter for parameter in command.params if parameter.envvar}


def options(service: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, **given: str) -> dict[str, Any]:
    """What the service's command line makes of arguments and environment."""
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    return dict(parser(service).make_context(service, list(arguments)).params)
