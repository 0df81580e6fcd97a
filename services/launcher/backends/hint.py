"""What brings a GPU that shows on this machine and that no backend is for."""

from collections.abc import Callable, Sequence

from services.launcher.backends import catalogue, signs
from shared.devices import Device


def missing(look: Callable[[], Sequence[Device]]) -> str:
    """One sentence with the command, or an empty text. Only where a GPU shows does it `look` at the devices."""
    paths = signs.look()
    if not signs.suggested(paths):
        return ""
    return signs.hint(paths, [device.kind for device in look()], catalogue.offered(catalogue.this_system()))
