"""`draftmesh config`: shows the options of every command as they are in effect, and checks the file.

It asks the launcher's own commands here, and runs the services, which parse their own options, as processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException

from services.launcher.fleet.child import service_command
from services.launcher.settings.service_options import KEYS
from shared.errors import StartError
from shared.folders import config_folder
from shared.settings import command_line, settings_file
from shared.settings.command_settings import DEFAULT, CommandSettings, EffectiveSetting
from shared.settings.settings_file import Command

_TIMEOUT_S: Final = 60  # importing llama.cpp on a cold disk


def show(settings: CommandSettings, name: str, arguments: Sequence[str], as_json: bool) -> int:
    """Print the effective options of the command `name` ("keys.new"), or all options that do not have their default; 0.

    Raises `StartError` for an unknown command, and for any option that its start would refuse.
    """
    chosen = _chosen(settings)
    commands = [_command(settings, name)] if name else sorted(settings.known())
    found = _ask(settings, commands, chosen, arguments, os.environ)
    failed = [answer for answer in found.values() if isinstance(answer, str)]
    if failed:
        command_line.refuse(failed[0])
    shown = {
        command: [setting for setting in answer if name or setting.source != DEFAULT]
        for command, answer in found.items()
        if not isinstance(answer, str)
    }
    if as_json:
        plain = {".".join(command): [asdict(setting) for setting in answer] for command, answer in shown.items()}
        file = None if chosen == settings_file.OFF else chosen
        sys.stdout.write(json.dumps({"file": file, "commands": plain}, indent=2) + "\n")
    else:
        _print(shown, chosen, bool(name))
    return 0


def _print(shown: Mapping[Command, Sequence[EffectiveSetting]], chosen: str, one: bool) -> None:
    """A table of all settings; equal settings of several commands share a line."""
    console = Console(highlight=False)
    console.print(Text(f"file: {'none' if chosen == settings_file.OFF else chosen}"), soft_wrap=True)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for command, settings in shown.items():
        for setting in settings:
            in_file = setting.source.startswith(f"{chosen}:")  # the first line has its folder
            source = Path(setting.source).name if in_file else setting.source
            alike.setdefault((setting.key, _text(setting.value), source), []).append(" ".join(command))
    if alike:
        table = Table("option", "value", "from", *(() if one else ("commands",)))
        for row, commands in alike.items():
            table.add_row(*map(Text, row), *(() if one else (Text(", ".join(commands)),)))
        console.print(table)
    if not one:
        rest = "everything else" if alike else "everything"
        console.print(f"{rest} has its default; `draftmesh config show COMMAND` lists all of one", soft_wrap=True)


def path(settings: CommandSettings) -> int:
    """Print the file that is read: 0, or 1 if there is none."""
    if settings.file is None:
        places = f"./{settings_file.NAME} and {config_folder() / settings_file.NAME}"
        Console(stderr=True, highlight=False).print(
            f"no file; looked for {places}; `draftmesh setup` writes one", markup=False, soft_wrap=True
        )
        return 1
    sys.stdout.write(f"{settings.file.path}\n")
    return 0


def check(settings: CommandSettings) -> int:
    """Print the first mistake that each command finds in the file: 0, or `BAD_OPTION` if there is one.

    Ignores environment variables, because they would hide the file's values.
    """
    if path(settings):
        return 1
    twins = [name for name in os.environ if name.startswith("DRAFTMESH_")]
    clean = {name: value for name, value in os.environ.items() if name not in twins}
    for name in twins:
        del os.environ[name]
    found = _ask(settings, sorted(settings.known()), _chosen(settings), (), clean)
    mistakes = list(dict.fromkeys(answer for answer in found.values() if isinstance(answer, str)))
    for mistake in mistakes:
        Console(stderr=True, highlight=False).print(Text(f"error: {mistake}"), soft_wrap=True)
    if not mistakes:
        Console(highlight=False).print("every key and value is allowed")
    return command_line.BAD_OPTION if mistakes else 0


def _chosen(settings: CommandSettings) -> str:
    return str(settings.file.path) if settings.file else settings_file.OFF


def _command(settings: CommandSettings, name: str) -> Command:
    command, known = tuple(name.split(".")), settings.known()
    if command not in known:
        raise StartError("COMMAND", name, f"one of {', '.join(sorted(map('.'.join, known)))}")
    return command


def _ask(
    settings: CommandSettings,
    commands: Iterable[Command],
    chosen: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> dict[Command, list[EffectiveSetting] | str]:
    """The settings of each command, or the line with which it would refuse to start."""
    given = (settings_file.OPTION, chosen, *arguments)
    services = {}
    for command in commands:
        if command in KEYS:
            words = (*service_command(command[0]), command_line.SHOW, *given)
            services[command] = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(environment)
            )
    found: dict[Command, list[EffectiveSetting] | str] = {}
    for command in commands:
        found[command] = _answer(services[command]) if command in services else _own(settings, command, given)
    return found


def _own(settings: CommandSettings, command: Command, arguments: Sequence[str]) -> list[EffectiveSetting] | str:
    try:
        return settings.effective(command, arguments)
    except TyperException as error:
        return command_line.explain(error, arguments, os.environ, settings)
    except StartError as error:
        return str(error)


def _answer(process: subprocess.Popen[str]) -> list[EffectiveSetting] | str:
    try:
        output, errors = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"a service did not say its settings within {_TIMEOUT_S} s"
    with suppress(ValueError):
        rows: list[dict[str, Any]] = json.loads(output)
        return [EffectiveSetting(**row) for row in rows]
    last = (errors.strip().splitlines() or [f"it ended with status {process.returncode}"])[-1]
    return last.removeprefix("error: ")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in (None, "") else str(value)
