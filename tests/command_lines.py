"""The services' own command lines, to hold what starts them against, and the launcher's, run within the test."""

import importlib
import io
import logging
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.main import get_command

from services.launcher import cli
from shared.settings import command_line

SERVICES = ("gateway", "verifier", "drafter")


def parser(service: str) -> Any:
    """The command-line parser of a service's own entry point."""
    return get_command(command_line.command(importlib.import_module(f"services.{service}.__main__").main))


def variables(command: Any) -> dict[str, Any]:
    """The options of a command by their environment twins."""
    return {parameter.envvar: parameter for parameter in command.params if parameter.envvar}


def options(service: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, **given: str) -> dict[str, Any]:
    """What the service's command line makes of arguments and environment."""
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    return dict(parser(service).make_context(service, list(arguments)).params)


def launch(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `draftmesh` in this process: its exit status, what it printed, and what it said on standard error."""
    return _status(arguments), *capfd.readouterr()


def launch_in(environment: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `draftmesh` in this process as if it had these variables only, and was a process of its own."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for name in set(os.environ) - set(environment):
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        status = _status(arguments)
    return subprocess.CompletedProcess(["draftmesh", *arguments], status, output.getvalue(), errors.getvalue())


def _status(arguments: Sequence[str]) -> int:
    with pytest.MonkeyPatch.context() as patch, _logs_kept():
        patch.setattr("sys.argv", ["draftmesh", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@contextmanager
def _logs_kept() -> Iterator[None]:
    """What is configured of logs within ends with it."""
    events, root = structlog.get_config(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        structlog.contextvars.unbind_contextvars("service")
        structlog.configure(**events)
        root.handlers[:] = handlers
        root.setLevel(level)


def forget_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No options from this shell or its user; `folder` is the working directory and holds the user's settings."""
    for name in [name for name in os.environ if name.startswith("DRAFTMESH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
    monkeypatch.chdir(folder)
