"""How much host memory ended conversations may take."""

from typing import Final

from shared.settings.verifier_options import CACHE_RAM_AUTO

_MIB: Final = 1 << 20
_MOST_MIB: Final = 8192  # llama-server's default
_SHARE: Final = 4  # one part in so many of what is free; the rest is for the system and for other models


def budget(wanted: str, free: int) -> int:
    """Bytes for `--cache-ram`, with `free` bytes left on this machine after the model was loaded."""
    return min(_MOST_MIB * _MIB, max(0, free) // _SHARE) if wanted == CACHE_RAM_AUTO else int(wanted) * _MIB
