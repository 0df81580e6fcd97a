"""The join token: the password of a drafter's Redis user, kept so that machines rejoin after `up` was restarted."""

import os
import re
import secrets
from pathlib import Path
from typing import Final

from shared.errors import StartError

USER: Final = "drafter"
OPTION: Final = "--join-token"
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")
_ALLOWED: Final = "16 to 128 letters, digits, _ and -"


def join_token(given: str, folder: Path) -> str:
    """`given`, or the token in the folder, which is made if there is none: readable only by this user.

    To lock a machine out, delete the file: the next start makes another token. Raises `StartError`.
    """
    if given:
        if not _FORM.fullmatch(given):
            raise StartError(OPTION, "(not shown)", _ALLOWED)
        return given
    file = folder / "join-token"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+") as content:
            kept = content.read().strip()
            if not kept:
                kept = secrets.token_urlsafe(24)
                content.write(f"{kept}\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise StartError(OPTION, file, f"cannot be kept there ({reason}); give one, or set XDG_STATE_HOME") from None
    if not _FORM.fullmatch(kept):
        raise StartError(OPTION, file, f"does not hold {_ALLOWED}; delete it, and draftmesh makes a new one")
    return kept
