"""The services as commands, which read their own options."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from services.launcher.fleet.child import service_command
from shared.settings import settings_file


def gateway(context: typer.Context) -> None:
    """The HTTP front (its own options: draftmesh gateway --help)."""
    become("gateway", context.args, same_file(context))


def verifier(context: typer.Context) -> None:
    """The process that owns the target model (draftmesh verifier --help)."""
    become("verifier", context.args, same_file(context))


def drafter(context: typer.Context) -> None:
    """A process that guesses ahead (draftmesh drafter --help)."""
    become("drafter", context.args, same_file(context))


def same_file(context: typer.Context) -> dict[str, str]:
    """The variable that makes a service read the `draftmesh.toml` found and checked here, or no file."""
    file = context.obj.file if context.obj else None
    return {settings_file.VARIABLE: str(file.path) if file else settings_file.OFF}


def become(service: str, arguments: Sequence[str], environment: dict[str, str] | None = None) -> NoReturn:
    """Turn this process into a service: signals and exit status are then the service's own."""
    command = (*service_command(service), *arguments)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, **(environment or {})})
