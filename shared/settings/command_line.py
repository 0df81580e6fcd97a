"""How a command ends when it cannot start: one line that names the option, the value and what is allowed; status 2. One
that finds no room for what it writes ends with one line and status 1."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import typer
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from shared.errors import StartError
from shared.lossy import lossy
from shared.settings.command_settings import PROGRAM, CommandSettings
from shared.settings.options_struct import flat
from shared.settings.settings_file import Known

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})

BAD_OPTION = 2  # the exit status of every command for wrong options
UNWRITTEN = 1  # the exit status of a command whose result could not be written
INTERRUPTED = 130  # the exit status of a process that Ctrl-C ended


def command(main: Callable[..., object]) -> typer.Typer:
    """A command line with `main` as its only command; `main` may take options structs."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(flat(main))
    return app


def run(app: typer.Typer, name: str, elsewhere: Known | None = None) -> NoReturn:
    """Run this process's command line and exit: with what the command returns, or 2 and one line for a bad option.

    Programs called `draftmesh ...` read `draftmesh.toml`; `elsewhere` are the file's keys for other programs.
    """
    root = get_command(app)
    settings = CommandSettings(root, name, elsewhere)
    try:
        if name.split()[0] == PROGRAM:
            settings.attach()
        code = root(standalone_mode=False, prog_name=name, obj=settings)
        sys.stdout.flush()
    except TyperException as error:
        refuse(explain(error, sys.argv[1:], os.environ, settings))
    except StartError as error:
        place = settings.place(error.option)
        refuse(f"{error} ({place})" if place else str(error))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        sys.stdout = lossy(sys.stdout)  # what is left in it cannot be written either
        say(f"{error.filename or 'the output'}: cannot be written ({error.strerror})")
        sys.exit(UNWRITTEN)
    except (KeyboardInterrupt, Abort):
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def refuse(line: str) -> NoReturn:
    """Say why on standard error and exit with `BAD_OPTION`."""
    say(line)
    sys.exit(BAD_OPTION)


def say(line: str) -> None:
    """One line about an error on standard error."""
    typer.echo(f"error: {' '.join(line.split())}", err=True)


def explain(
    error: TyperException, arguments: Sequence[str], environment: Mapping[str, str], settings: CommandSettings
) -> str:
    """One line for `error`, which `arguments`, an option's environment twin or a line of the file caused."""
    message = " ".join(error.format_message().split())
    parameter = getattr(error, "param", None)
    names = [name for name in getattr(parameter, "opts", ()) if name.startswith("-")]
    if not names:
        context = getattr(error, "ctx", None)
        return f"{message} (see {context.command_path} --help)" if context else message
    name = max(names, key=len)
    # "Invalid value for '--port': Input should be ..." lacks only the value.
    allowed = str(getattr(error, "message", message)).removeprefix("Value error, ")
    entry = settings.origin(str(getattr(parameter, "name", "")))
    if entry:
        return f"{entry.place}: {entry.key} = {entry.value}: {allowed}"
    return f"{name} {_value(names, arguments, environment, getattr(parameter, 'envvar', None))}: {allowed}"


def _value(names: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], envvar: object) -> str:
    value = ""
    for index, argument in enumerate(arguments):
        for name in names:
            if argument == name and index + 1 < len(arguments):
                value = arguments[index + 1]
            elif argument.startswith(f"{name}="):
                value = argument.removeprefix(f"{name}=")
    if not value and isinstance(envvar, str):
        value = environment.get(envvar, "")
    return value
