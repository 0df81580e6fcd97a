"""The machines that may join an `up --lan`: each has a user of its own in the embedded Valkey, and is revoked alone.

A token is a machine's name, a dot and its user's password. It is kept so that the machine rejoins after `up` was
restarted, in a file that only this user can read.
"""

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

from services.launcher.facts.run_file import chosen
from services.launcher.fleet import access_rules
from shared.errors import StartError
from shared.folders import state_folder
from shared.wire.broker import connect

FIRST: Final = "spare"  # the machine that an `up` invites if nobody was invited before
_FORM: Final = re.compile(r"([a-z0-9-]{1,32})\.([A-Za-z0-9_-]{16,128})")


@dataclass(frozen=True, slots=True)
class Token:
    """What a machine needs to join."""

    machine: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.machine}.{self.password}"

    @property
    def user(self) -> str:
        return access_rules.machine_user(self.machine)

    @property
    def digest(self) -> str:
        """What the server keeps of the password."""
        return hashlib.sha256(self.password.encode()).hexdigest()

    @classmethod
    def read(cls, text: str, place: object) -> Self:
        """The token in `text`. Raises `StartError`, which names the `place` and never the text."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise StartError(
                "token", place, "is not a machine's name, a dot and a password, as `up --lan` and `invite` print it"
            )
        return cls(match[1], match[2])


class Machines:
    """The tokens in a folder, a file each."""

    def __init__(self, folder: Path | None = None) -> None:
        """By default those of this user's fleets."""
        self._folder = folder or state_folder() / "machines"

    def tokens(self) -> list[Token]:
        """All of them, by machine; that of a first machine, which is made, if there is none. Raises `StartError`."""
        names = sorted(file.name for file in self._folder.iterdir()) if self._folder.is_dir() else []
        return [self.invite(name) for name in names or [FIRST]]

    def invite(self, machine: str) -> Token:
        """The token of that machine, which is made if it has none. Raises `StartError`."""
        access_rules.machine_user(machine)
        file = self._folder / machine
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+") as content:
                kept = content.read().strip()
                if not kept:
                    kept = secrets.token_urlsafe(24)
                    content.write(f"{kept}\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise StartError("NAME", file, f"its token cannot be kept there ({reason}); set XDG_STATE_HOME") from None
        return Token.read(f"{machine}.{kept}", file)

    def revoke(self, machine: str) -> None:
        """Forget a machine. Raises `StartError` if it was not invited."""
        access_rules.machine_user(machine)
        try:
            (self._folder / machine).unlink()
        except FileNotFoundError:
            raise StartError("NAME", machine, "was not invited, so there is nothing to revoke") from None
        except OSError as error:
            raise StartError("NAME", self._folder / machine, f"cannot be removed ({error.strerror})") from None


def invite(machine: str, up: int | None, say: Callable[[str], object]) -> None:
    """Make a user for a machine, in the running `up` too. Raises `StartError`."""
    url = _running(up)
    token = Machines().invite(machine)
    if url:
        _tell(url, "SETUSER", token.user, "reset", *access_rules.words(token.user, token.digest))
    say(f"token of {machine}: {token}")
    say(_WHEN if url else _LATER)


def revoke(machine: str, up: int | None, say: Callable[[str], object]) -> None:
    """Remove a machine's user, in the running `up` too, which ends its connections. Raises `StartError`."""
    url = _running(up)
    Machines().revoke(machine)
    if url:
        _tell(url, "DELUSER", access_rules.machine_user(machine))
    say(f"{machine} cannot join any more" + (", and its connections are closed" if url else ""))


_WHEN: Final = "on that machine type `draftmesh join` with the address that `up` printed; it asks for the token"
_LATER: Final = "no `up` of yours is open to other machines now; the next `up --lan` knows the token"


def _running(up: int | None) -> str:
    """The address of the running `up`'s Redis with all rights; empty if none is open to other machines."""
    run = chosen(up)
    return run.redis if run is not None and urlsplit(run.redis).password else ""


def _tell(url: str, *words: str) -> None:
    async def send() -> None:
        async with connect(url) as broker:
            await cast(Any, broker.redis).execute_command("ACL", *words)

    asyncio.run(send())
