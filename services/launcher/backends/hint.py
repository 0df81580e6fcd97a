"""Suggests a backend for a GPU of this machine that has none."""

from collections.abc import Callable

from services.launcher.backends import catalogue, signs
from shared.model.hardware import Hardware


def missing(look: Callable[[], Hardware]) -> str:
    """One sentence with the command, or an empty text. Calls `look` for the devices only if there are signs of a
    GPU."""
    paths = signs.look()
    if not signs.suggested(paths):
        return ""
    here = look()
    kinds = {device.kind for device in here.devices}
    return "" if here.broken else signs.hint(paths, kinds, catalogue.offered(catalogue.this_system()))
