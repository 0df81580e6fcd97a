"""How large the models of a check are: by what decodes cost there, so that it ends in time and tells something."""

from typing import Final

from bench.device.random_model import Shape

TINY: Final = Shape(width=64, inner=256, layers=2, tokens=4096)
SMALL: Final = Shape(width=512, inner=2048, layers=8)
FIRST_FACTOR: Final = 8  # what the target is widened by when it is measured for the first time
_SLOW_MS: Final = 3.0  # of a tiny model's decode: there the small one would take a hundred times as long
_WANTED_MS: Final = 20.0  # of the target's decode: what a 30B model in 4 bits takes on a card of 900 GB/s
_MOST_BYTES: Final = 24 << 30  # it has to be loaded three times
_SHARE: Final = 0.6  # of the memory that is free


def shape(tiny_ms: float) -> Shape:
    """What the models are made from, after what one row of a tiny one took."""
    return TINY if tiny_ms > _SLOW_MS else SMALL


def factor(first_ms: float, first_bytes: int, free: int, added: int) -> int:
    """What to widen the target by, after what it took and was at `FIRST_FACTOR`, where one more adds `added` bytes.

    `free` are the bytes that are free on the device or in the machine, whichever is less.
    """
    wanted = first_bytes * _WANTED_MS / max(first_ms, 0.01)
    size = min(wanted, _MOST_BYTES, _SHARE * free)
    return max(1, FIRST_FACTOR + int((size - first_bytes) // added))
