"""How long a test waits before it takes what it waits for as never coming."""

from typing import Final

HANG_S: Final = 50.0  # no bound of a behaviour: a machine that others use takes its time, and a passing test none of it
