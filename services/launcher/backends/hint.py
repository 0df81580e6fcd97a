"""What brings a GPU that shows on this machine and that no backend is for."""

from collections.abc import Callable

from services.launcher.backends import catalogue, signs
from shared.model.hardware import Hardware


def missing(look: Callable[[], Hardware]) -> str:
    """One sentence with the command, or an empty text. Only where a GPU shows does it `look` at the devices."""
    paths = signs.look()
    if not signs.suggested(paths):
        return ""
    here = look()
    kinds = {device.kind for device in here.devices}
    return "" if here.broken else signs.hint(paths, kinds, catalogue.offered(catalogue.this_system()))
