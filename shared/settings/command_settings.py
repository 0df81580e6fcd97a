"""Lets `draftmesh.toml` hold the options of a command line: every command gets `--config`, and reads it first.

It uses the `default_map` of typer's parsers, so that a value of the file is checked like one of the command line.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from shared.errors import StartError
from shared.settings import settings_file
from shared.settings.settings_file import Command, ConfigFile, FileEntry, Known

PROGRAM: Final = "draftmesh"
DEFAULT: Final = "default"
HIDDEN: Final = "***"
_UNSETTABLE: Final = frozenset({"help", "version", "config"})

Parser = Any  # typer's own copy of click has no public types


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One option of a command, its value as JSON holds it and without secrets, and where that came from."""

    key: str
    value: Any
    source: str  # "command line", "environment NAME", "FILE:LINE" or "default"


@dataclass(slots=True)
class CommandSettings:
    """The file of one process, once its command is known, and the options that took their values from it.

    `name` is the name of the program, such as "draftmesh gateway". `elsewhere` are the keys of commands that other
    programs parse; None: this program knows only its own command, and ignores the rest of a file.
    """

    root: Parser
    name: str
    elsewhere: Known | None = None
    file: ConfigFile | None = None
    context: Any = None  # of the command that runs
    used: dict[str, FileEntry] = field(default_factory=dict)  # by parameter name

    def attach(self) -> None:
        """Give every command a `--config`, which is read before its other options."""
        option = self._option()
        for command in self.commands().values():
            command.params.append(option)

    def commands(self) -> dict[Command, Parser]:
        """Every command that this program can run, by the words that name it."""
        return dict(_commands(self.root, tuple(self.name.split()[1:])))

    def known(self) -> dict[Command, Collection[str]]:
        own: dict[Command, Collection[str]] = {path: keys(command) for path, command in self.commands().items()}
        return own | dict(self.elsewhere or {})

    def general(self) -> set[str]:
        """The keys that may stand at the top level: those that mean the same to every command."""
        own = {key for command in self.commands().values() for key in _general(keys(command))}
        return own | {key for names in (self.elsewhere or {}).values() for key in names}

    def load(self, context: Any, chosen: str) -> None:
        """Make the file's values the defaults of `context`'s command. Raises `StartError` for a file that is wrong."""
        self.context, self.file, self.used = context, None, {}
        path = settings_file.find(chosen)
        if path is None:
            return
        self.file = settings_file.read(path)
        command, parameters = path_of(context), keys(context.command)
        if self.elsewhere is None:
            self.file.check_own(command, parameters)
        else:
            self.file.check(self.known(), self.general())
        context.default_map = {}
        for key, entry in self.file.entries(command, _general(parameters)).items():
            if key in parameters:  # otherwise it belongs to a service, which reads the file itself
                self._take(context, parameters[key], entry, key in self.file.tables.get(command, {}))

    def _take(self, context: Any, parameter: Parser, entry: FileEntry, insist: bool) -> None:
        """Give `parameter` the entry's value; skips a top-level list for an option that takes one value, unless
        `insist`."""
        values = entry.value if isinstance(entry.value, list) else [entry.value]
        if not all(isinstance(value, str | int | float) for value in values):
            raise StartError(f"{entry.place}:", entry.key, "a text or a number, or a list of them")
        if any(isinstance(value, bool) for value in values) and not parameter.is_flag:
            raise StartError(f"{entry.place}:", entry.key, "true and false are for options that take no value")
        if not parameter.multiple and len(values) != 1:
            if insist:
                raise StartError(f"{entry.place}:", entry.key, "takes one value, not a list")
            return
        context.default_map[parameter.name] = values if parameter.multiple else values[0]
        self.used[parameter.name] = entry

    def effective(self, command: Command, arguments: Sequence[str]) -> list[EffectiveSetting]:
        """Every option of a command with `arguments`. Raises what the command's start would raise."""
        parser = self.commands()[command]
        context = parser.context_class(parser, info_name=" ".join((PROGRAM, *command)))
        given, _, _ = parser.make_parser(context).parse_args(list(arguments))
        options = keys(parser)
        file = next(parameter for parameter in parser.params if settings_file.OPTION in parameter.opts)
        file.handle_parse_result(context, given, [])
        settings = []
        for key, parameter in options.items():
            value, _ = parameter.handle_parse_result(context, given, [])
            settings.append(EffectiveSetting(key, _shown(key, value), self._source(context, parameter)))
        return settings

    def _source(self, context: Any, parameter: Parser) -> str:
        match context.get_parameter_source(parameter.name).name:
            case "COMMANDLINE":
                return "command line"
            case "ENVIRONMENT":
                return f"environment {parameter.envvar}"
            case "DEFAULT_MAP":
                return self.used[parameter.name].place
        return DEFAULT

    def origin(self, parameter: str) -> FileEntry | None:
        """The entry whose value the parameter has; None if its value came from elsewhere."""
        source = self.context.get_parameter_source(parameter) if self.context else None
        return self.used.get(parameter) if source is not None and source.name == "DEFAULT_MAP" else None

    def place(self, option: str) -> str:
        """The place in the file of an option's value, named as on the command line; empty if it is not there."""
        for parameter in self.used:
            entry = self.origin(parameter)
            if entry and option == f"--{entry.key.replace('_', '-')}":
                return entry.place
        return ""

    def _option(self) -> Parser:
        def read(context: typer.Context, value: str) -> None:
            self.load(context, value)

        def declare(
            chosen: Annotated[
                str,
                typer.Option(
                    settings_file.OPTION,
                    envvar=settings_file.VARIABLE,
                    show_envvar=True,
                    metavar="FILE",
                    help=f"File of options; else ./{settings_file.NAME} or the user's own. {settings_file.OFF}: none.",
                    is_eager=True,
                    expose_value=False,
                    callback=read,
                ),
            ] = "",
        ) -> None:
            pass

        app = typer.Typer(add_completion=False)
        app.command()(declare)
        return next(parameter for parameter in get_command(app).params if settings_file.OPTION in parameter.opts)


def _shown(key: str, value: Any) -> Any:
    """A value for people and JSON; of a secret only whether it is set."""
    match value:
        case list() | tuple():
            return [_shown(key, part) for part in value]
        case Enum():
            return value.value
        case Path():
            return str(value)
        case str() if settings_file.is_secret(key, value):
            from shared.wire.broker import redacted  # costs more than most commands need to start

            return redacted(value) if "://" in value else HIDDEN
    return value


def path_of(context: Any) -> Command:
    return tuple(context.command_path.split()[1:])


def keys(command: Parser) -> dict[str, Parser]:
    """The options of a command by their keys in a file."""
    found = {}
    for parameter in command.params:
        name = max((name for name in parameter.opts if name.startswith("--")), key=len, default="")
        key = name.removeprefix("--").replace("-", "_")
        if key and key not in _UNSETTABLE:
            found[key] = parameter
    return found


def _general(parameters: Mapping[str, Parser]) -> list[str]:
    """The keys that have environment twins; other options, such as --json, belong to one command."""
    return [key for key, parameter in parameters.items() if parameter.envvar]


def _commands(parser: Parser, path: Command) -> Iterator[tuple[Command, Parser]]:
    below = getattr(parser, "commands", {})
    if not below or (path and parser.invoke_without_command):
        yield path, parser
    for name, command in below.items():
        yield from _commands(command, (*path, name))
