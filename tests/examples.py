"""How many examples of a property one run tries: the same few at each change, and all, chosen anew, in `make soak`."""

import os
from typing import Final

from hypothesis import settings

_ALL: Final = "DRAFTMESH_TEST_ALL_EXAMPLES" in os.environ
_SHARE: Final = 4

settings.register_profile("few", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=400, deadline=None)
settings.load_profile("all" if _ALL else "few")


def few(count: int, share: int = _SHARE) -> int:
    """`count`, or a quarter of it, or another share, where not all examples are wanted."""
    return count if _ALL else count // share
