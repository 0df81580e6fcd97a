"""`draftmesh service`: lets the system start `up` or `join` and keep it running, for this user."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console

from services.launcher.display import say
from services.launcher.fleet import service_files
from services.launcher.fleet.service_files import ServiceFile
from shared.errors import StartError
from shared.settings import settings_file
from shared.settings.command_settings import PROGRAM, CommandSettings
from shared.settings.options import DEFAULT_DRAIN_S
from shared.wire import broker

DESCRIPTIONS: Final = {
    "up": "draftmesh up: a fleet that answers faster with drafts",
    "join": "draftmesh join: guesses ahead for a fleet elsewhere",
}
_TIMEOUT_S: Final = 4000.0  # systemctl waits until a service has ended, and that may drain for an hour


def install(settings: CommandSettings, name: str, arguments: Sequence[str], show: bool, now: bool, force: bool) -> int:
    """Write the file that starts the command, or `show` it; start it only `now`. The exit status.

    Raises `StartError` for options that the command would refuse.
    """
    file = _file(name, *_command(settings, name, arguments))
    console = Console(stderr=True, highlight=False)
    if show:
        sys.stdout.write(file.text)
        say(console, f"it would be {file.path}")
        say(console, _instructions(file))
        return 0
    if file.path.exists() and file.path.read_text() != file.text and not force:
        raise StartError("service", file.path, "says something else; --force replaces it, --print shows the new one")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as text:
            text.write(file.text)
    except OSError as error:
        raise StartError("service", file.path, f"cannot be written ({error.strerror})") from None
    say(console, f"wrote {file.path}")
    variables = [variable for variable in os.environ if variable.startswith("DRAFTMESH_")]
    if variables:
        say(console, f"set in this shell and not in the service: {', '.join(sorted(variables))}")
    if now:
        return _run(file.start, console)
    say(console, _instructions(file))
    return 0


def uninstall(name: str) -> int:
    """Stop the service and remove its file: 0, or 1 if there is none."""
    file = _file(name, ())
    console = Console(stderr=True, highlight=False)
    if not file.path.exists():
        say(console, f"nothing to remove: there is no {file.path}")
        return 1
    _run(file.stop, console)
    with suppress(FileNotFoundError):
        file.path.unlink()
    _run(file.after_removal, console)
    say(console, f"removed {file.path}")
    return 0


def _file(name: str, command: Sequence[str], drain_s: float = DEFAULT_DRAIN_S) -> ServiceFile:
    if name not in DESCRIPTIONS:
        raise StartError("COMMAND", name, f"one of {', '.join(DESCRIPTIONS)}")
    service = PROGRAM if name == "up" else f"{PROGRAM}-{name}"
    if sys.platform == "darwin":
        return service_files.launchd(service, command, Path.home(), os.getuid(), drain_s)
    if sys.platform == "linux":
        home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        return service_files.systemd(service, DESCRIPTIONS[name], command, home, drain_s)
    raise StartError("service", sys.platform, "is built for systemd and launchd")


def _command(settings: CommandSettings, name: str, arguments: Sequence[str]) -> tuple[list[str], float]:
    """The command line, checked with the command's own parser before anything is written, and how long it drains."""
    command = Path(sys.executable).parent / PROGRAM
    start = [str(command)] if command.exists() else [sys.executable, "-P", "-m", "services.launcher"]
    file = [settings_file.OPTION, str(settings.file.path)] if settings.file else []
    if exposed := next((word for word in arguments if urlsplit(word).password), ""):
        raise StartError("COMMAND", broker.redacted(exposed), "a unit would show its password; use --token-file")
    found = settings.effective((name,), [*file, *arguments]) if (name,) in settings.known() else []
    drain_s = next((float(setting.value) for setting in found if setting.key == "drain"), DEFAULT_DRAIN_S)
    return [*start, name, *arguments, *file], drain_s


def _instructions(file: ServiceFile) -> str:
    return "\n".join([f"start it: {' && '.join(shlex.join(command) for command in file.start)}", *file.hints])


def _run(commands: Sequence[Sequence[str]], console: Console) -> int:
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            problem = done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            say(console, f"{shlex.join(command)}: {' '.join(problem.split())}")
            return 1
    return 0
