"""`draftmesh pull`: downloads models from the hub before a fleet needs them."""

import sys
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from services.launcher.display import say
from services.launcher.models import fetching
from shared.errors import StartError
from shared.model import hub, model_source

FAILED: Final = 1
_OPTION: Final = "MODEL"  # the command's argument, by which errors name it


def run(specs: Sequence[str]) -> int:
    """Fetch each of `specs` and print its path on standard output: 0, or 1 if one failed.

    Shows progress on standard error. Raises `StartError`, before any download, for a name that cannot be a model, and
    with --offline.
    """
    if hub.is_offline():
        raise StartError("pull", "--offline", "models come over the network; `draftmesh models` lists those here")
    for spec in specs:
        model_source.check(spec, _OPTION)
    console = Console(stderr=True, highlight=False)
    code = 0
    for spec in dict.fromkeys(specs):
        try:
            path = fetching.find(spec, _OPTION, console)
        except StartError as error:
            say(console, f"error: {error}", "red")
            code = FAILED
        except KeyboardInterrupt:
            say(console, "stopped; the downloaded part is kept, and the same command continues")
            raise
        else:
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
    return code
