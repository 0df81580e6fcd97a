"""API keys on disk: digests with names in a file, from which no key can be recovered; and when keys are required.

A key is 256 random bits, so its plain SHA-256 cannot be searched and needs no slow hash. A line of the file is the
digest in 64 hexadecimal digits, a space and a name; empty lines and those that begin with # are ignored.
"""

import hashlib
import ipaddress
import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

from shared.errors import StartError

OPTION: Final = "--api-keys-file"
VARIABLE: Final = "DRAFTMESH_API_KEY"  # holds keys themselves
PREFIX: Final = "dm-"  # so that people and scanners for leaked secrets recognise a key
_LINE: Final = re.compile(r"([0-9a-f]{64}) ([\w.@-]{1,64})")
_NAME: Final = re.compile(r"[\w.@-]{1,64}")


def digest(key: str) -> bytes:
    """The digest that we store of a key: 32 bytes."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def read(path: str | Path) -> dict[str, bytes]:
    """The digests in the file by their names. Raises `StartError` naming the line at fault."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise StartError(OPTION, path, f"cannot be read ({reason}); `draftmesh keys new` makes one") from None
    found: dict[str, bytes] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:  # a key that was put there by mistake must not get into a log
            raise StartError(OPTION, path, f"line {number} is not a SHA-256 digest in hexadecimal, a space and a name")
        if match[2] in found:
            raise StartError(OPTION, path, f"line {number}: the name {match[2]} occurs twice")
        found[match[2]] = bytes.fromhex(match[1])
    if not found:  # an empty file would open the gateway that it should protect
        raise StartError(OPTION, path, "holds no key; `draftmesh keys new` makes one")
    return found


def new() -> str:
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def add(path: str | Path, name: str) -> str:
    """Make a key, append its digest to the file under `name` ("": a random one) and return the key, which is stored
    nowhere.

    A new file is readable by its owner only. Raises `StartError`.
    """
    if not str(path):
        raise StartError(OPTION, "(empty)", "name the file for digests of keys; it may be new")
    file = Path(path).expanduser()
    known = read(file) if file.exists() and file.stat().st_size else {}
    name = name or f"key-{secrets.token_hex(4)}"
    if not _NAME.fullmatch(name):
        raise StartError("--name", name, "up to 64 letters, digits and _ . @ -")
    if name in known:
        raise StartError("--name", name, f"{file} has a key of that name")
    key = new()
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as lines:
            lines.write(f"{digest(key).hex()} {name}\n")
    except OSError as error:
        raise StartError(OPTION, path, f"cannot be written ({error.strerror})") from None
    return key


def require(host: str, keys: bool, no_auth: bool, option: str = "--host") -> None:
    """Raise `StartError` if a gateway at `host` would serve other machines without asking for a key."""
    if not keys and not no_auth and not on_loopback(host):
        raise StartError(
            option, host, f"other machines can reach it, so it needs keys ({OPTION}, DRAFTMESH_API_KEY), or --no-auth"
        )


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. False for an unknown host, on which no server can listen."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        return True
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)
