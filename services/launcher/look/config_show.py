"""`draftmesh config`: shows the options of every command as they are in effect, and checks the file."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException
from typer.main import get_command

from services.launcher.settings.service_options import STRUCTS
from shared.errors import StartError
from shared.folders import config_folder
from shared.settings import command_line, settings_file
from shared.settings.command_settings import DEFAULT, PROGRAM, CommandSettings, EffectiveSetting
from shared.settings.settings_file import Command


def show(settings: CommandSettings, name: str, arguments: Sequence[str], as_json: bool) -> int:
    """Print the effective options of the command `name` ("keys.new"), or all options that do not have their default; 0.

    Raises `StartError` for an unknown command, and for any option that its start would refuse.
    """
    chosen = _chosen(settings)
    commands = [_command(settings, name)] if name else sorted(settings.known())
    found = _ask(settings, commands, chosen, arguments)
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
    for name in [name for name in os.environ if name.startswith("DRAFTMESH_")]:
        del os.environ[name]
    found = _ask(settings, sorted(settings.known()), _chosen(settings), ())
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
    settings: CommandSettings, commands: Iterable[Command], chosen: str, arguments: Sequence[str]
) -> dict[Command, list[EffectiveSetting] | str]:
    """The settings of each command, or the line with which it would refuse to start."""
    given = (settings_file.OPTION, chosen, *arguments)
    return {
        command: _answer(_service(command) if command in STRUCTS else settings, command, given) for command in commands
    }


def _service(command: Command) -> CommandSettings:
    """The command line that a service has in its own process."""

    def main(options: STRUCTS[command]) -> None:  # type: ignore[valid-type]
        pass

    settings = CommandSettings(get_command(command_line.command(main)), " ".join((PROGRAM, *command)))
    settings.attach()
    return settings


def _answer(settings: CommandSettings, command: Command, arguments: Sequence[str]) -> list[EffectiveSetting] | str:
    try:
        return settings.effective(command, arguments)
    except TyperException as error:
        return command_line.explain(error, arguments, os.environ, settings)
    except StartError as error:
        return str(error)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in (None, "") else str(value)
