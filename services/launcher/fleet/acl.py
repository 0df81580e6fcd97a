"""`draftmesh acl`: users for your own Redis, one per service and one per machine that drafts, with passwords of their
own.

The server's file has the digests of the passwords; each user's file has its password, readable by its owner only.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.launcher.fleet import access_rules
from shared.errors import StartError
from shared.wire import broker

USERS: Final = "users.acl"  # for the server's `aclfile`
_USER: Final = re.compile(r"user (\S+) ")
_DIGEST: Final = re.compile(r" #([0-9a-f]{64})\b")


def write(folder: Path, address: str, machines: Collection[str] = ()) -> list[Path]:
    """Write the server's users, and for each a file that sets `DRAFTMESH_REDIS` to `address` with that user.

    Returns the files that it wrote. Raises `StartError`; never changes existing files.
    """
    names = [*access_rules.SERVICES, *map(access_rules.machine_user, machines)]
    _check(address)
    present = [name for name in (USERS, *(f"{name}.env" for name in names)) if (folder / name).exists()]
    if present:
        raise StartError(
            "FOLDER", folder, f"holds {present[0]} already; --update keeps its passwords and writes new rights"
        )
    return _written(folder, address, names, {})


def update(folder: Path, address: str, machines: Collection[str] = (), revoked: Collection[str] = ()) -> list[Path]:
    """Give every user in the folder the rights of this release and keep its password, and leave other users' lines.

    Adds the services and `machines` that have no user yet, and removes the `revoked` machines. Returns the files that
    it wrote. Raises `StartError` and changes nothing if the folder holds no users, or none of a revoked machine.
    """
    added, gone = [*map(access_rules.machine_user, machines)], [*map(access_rules.machine_user, revoked)]
    _check(address)
    try:
        lines = (folder / USERS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise StartError("FOLDER", folder, f"{USERS} cannot be read ({reason}); without --update it is made") from None
    known = {match[1]: line for line in lines if (match := _USER.match(line))}
    for name in gone:
        if name not in known:
            raise StartError("--revoke", name.removeprefix("drafter-"), f"has no user in {folder / USERS}")
    ours = [name for name in known if name.startswith("drafter-") and name not in gone]
    names = [*dict.fromkeys([*access_rules.SERVICES, *ours, *added])]
    kept = {name: digest[1] for name in names if (digest := _DIGEST.search(known.get(name, "")))}
    others = [line for name, line in known.items() if name not in {*names, *gone, "default"}]
    written = _written(folder, address, names, kept, others)
    for name in gone:
        with suppress(FileNotFoundError):
            (folder / f"{name}.env").unlink()
    return written


def _check(address: str) -> None:
    broker.check(address)
    if re.match(r"rediss?://[^/]*@", address) or not re.match(r"rediss?://", address):
        raise StartError("ADDRESS", broker.redacted(address), "an address without a user, such as redis://host:6379/0")


def _written(
    folder: Path, address: str, names: Collection[str], kept: Mapping[str, str], others: Collection[str] = ()
) -> list[Path]:
    """Write the users, the new ones' files first. `kept` has the digests of passwords that stay."""
    passwords = {name: secrets.token_urlsafe(24) for name in names if name not in kept}
    digests = {**kept, **{name: hashlib.sha256(password.encode()).hexdigest() for name, password in passwords.items()}}
    lines = [access_rules.ANYONE, *(access_rules.user(name, digests[name]) for name in names), *others]
    scheme, _, place = address.partition("://")
    contents = {
        f"{name}.env": f"DRAFTMESH_REDIS={scheme}://{name}:{password}@{place}\n" for name, password in passwords.items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            _replace(folder / name, content, 0o600)
        _replace(folder / USERS, "".join(f"{line}\n" for line in lines), 0o644)  # a server may run as another user
    except OSError as error:
        raise StartError("FOLDER", folder, f"cannot be written ({error.strerror})") from None
    return [folder / name for name in (USERS, *contents)]


def _replace(path: Path, content: str, mode: int) -> None:
    """Write a whole file or none; nobody else can read it in between."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(content)
    new.replace(path)
