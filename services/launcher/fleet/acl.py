"""`draftmesh acl`: makes users for your own Redis, each with the rights of one service and a new password."""

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

from services.launcher.fleet import access_rules
from shared.errors import StartError
from shared.wire import broker

USERS: Final = "users.acl"  # for the server's `aclfile`


def write(folder: Path, address: str) -> list[Path]:
    """Write the server's users and for each service a file that sets `DRAFTMESH_REDIS` to `address` with its user.

    Passwords are in the services' files only, readable by their owner; the server's file has digests. Raises
    `StartError`; never changes existing files.
    """
    broker.check(address)
    if re.match(r"rediss?://[^/]*@", address) or not re.match(r"rediss?://", address):
        raise StartError("ADDRESS", broker.redacted(address), "an address without a user, such as redis://host:6379/0")
    passwords = {service: secrets.token_urlsafe(24) for service in access_rules.SERVICES}
    users = [
        access_rules.user(service, hashlib.sha256(password.encode()).hexdigest())
        for service, password in passwords.items()
    ]
    contents = {USERS: "\n".join([access_rules.ANYONE, *users, ""])}
    scheme, _, place = address.partition("://")
    for service, password in passwords.items():
        contents[f"{service}.env"] = f"DRAFTMESH_REDIS={scheme}://{service}:{password}@{place}\n"
    present = [name for name in contents if (folder / name).exists()]
    if present:
        raise StartError("FOLDER", folder, f"holds {present[0]} already, and running services may depend on it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            mode = 0o644 if name == USERS else 0o600  # a server in a container runs as another user
            with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
                file.write(content)
    except OSError as error:
        raise StartError("FOLDER", folder, f"cannot be written ({error.strerror})") from None
    return [folder / name for name in contents]
