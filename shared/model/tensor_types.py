"""How many bytes tensors take, by ggml's numbers of types (`ggml.h`, `ggml-common.h`). Pure.

gguf has the same table, but importing it takes half a second, and every start reads a model's header.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

# By type: the values of a block, and the bytes of a block.
BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 40),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}


def size_of(shape: Sequence[int], kind: int) -> int:
    """Bytes of a tensor of this shape and type; 0 for a type that is not known here."""
    values, size = BLOCKS.get(kind, (1, 0))
    return prod(shape) // values * size
