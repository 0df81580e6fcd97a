"""What systemd and launchd need to keep a command of ours running for one user: a file, and commands to type. Pure."""

import math
import plistlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import StartError
from shared.settings.command_line import BAD_OPTION
from shared.settings.options import DEFAULT_DRAIN_S

_STOP_S: Final = 40.0  # beyond the drain, for `up` to stop its children kind by kind
_RESTART_S: Final = 5
_PLAIN: Final = re.compile(r"[\w./:=@,+-]+", re.ASCII)
_UNIT: Final = """\
# Written by `draftmesh service install`; its options are in draftmesh.toml, or in ExecStart.
[Unit]
Description={description}
StartLimitIntervalSec=120
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
WorkingDirectory=%h
# The children are stopped by their parent, in order; what is left after it is killed.
KillMode=mixed
TimeoutStopSec={stop}
Restart=on-failure
RestartSec={restart}
# Exit status 2 means wrong options, which a restart does not change.
RestartPreventExitStatus={bad_option}
NoNewPrivileges=yes
LockPersonality=yes
RestrictSUIDSGID=yes
UMask=0077

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A service file: its path, its contents, and the commands that start, stop and watch the service."""

    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    after_removal: tuple[tuple[str, ...], ...]
    hints: tuple[str, ...]


def stop_s(drain_s: float) -> int:
    """Seconds that a service may take to end, if its gateway drains for `drain_s`."""
    return math.ceil(drain_s + _STOP_S)


def systemd(
    name: str, description: str, command: Sequence[str], config_home: Path, drain_s: float = DEFAULT_DRAIN_S
) -> ServiceFile:
    """A unit of the user's own systemd. Raises `StartError` for a word that a unit cannot hold."""
    unit = f"{name}.service"
    text = _UNIT.format(
        description=description,
        command=" ".join(map(_quoted, command)),
        stop=stop_s(drain_s),
        restart=_RESTART_S,
        bad_option=BAD_OPTION,
    )
    reload = ("systemctl", "--user", "daemon-reload")
    return ServiceFile(
        path=config_home / "systemd/user" / unit,
        text=text,
        start=(reload, ("systemctl", "--user", "enable", "--now", unit)),
        stop=(("systemctl", "--user", "disable", "--now", unit),),
        after_removal=(reload,),
        hints=(f"watch it: journalctl --user -u {name} -f", "keep it after logging out: loginctl enable-linger"),
    )


def launchd(name: str, command: Sequence[str], home: Path, user: int, drain_s: float = DEFAULT_DRAIN_S) -> ServiceFile:
    """An agent of the own launchd of the user with the id `user`."""
    log = str(home / "Library/Logs" / f"{name}.log")
    path = home / "Library/LaunchAgents" / f"{name}.plist"
    content = {
        "Label": name,
        "ProgramArguments": list(command),
        "WorkingDirectory": str(home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": _RESTART_S,
        "ExitTimeOut": stop_s(drain_s),
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o077,
    }
    return ServiceFile(
        path=path,
        text=plistlib.dumps(content, sort_keys=False).decode(),
        start=(("launchctl", "bootstrap", f"gui/{user}", str(path)),),
        stop=(("launchctl", "bootout", f"gui/{user}/{name}"),),
        after_removal=(),
        hints=(f"watch it: tail -f {log}",),
    )


def _quoted(word: str) -> str:
    """One word of ExecStart (systemd.service(5), "command lines"): escapes specifiers, variables and backslashes."""
    if any(not character.isprintable() for character in word):
        raise StartError("ARGUMENT", repr(word), "must be text on one line, because a unit file holds it")
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
