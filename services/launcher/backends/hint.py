"""What brings a GPU that shows on this machine and that no backend is for."""

from collections.abc import Callable

from services.launcher.backends import catalogue, signs
from shared.hardware import Hardware


def missing(look: Callable[[], Hardware]) -> str:
    """One sentence with the command, or an empty text. Only where a GPU shows is this machine's hardware looked at."""
    paths = signs.look()
    backend = signs.suggested(paths)
    if not backend:
        return ""
    here = look()
    if backend in here.broken:
        return ""  # that is told by itself
    return signs.hint(paths, [device.kind for device in here.devices], catalogue.offered(catalogue.this_system()))
