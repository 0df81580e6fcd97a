"""How long a test waits before it takes what it waits for as never coming."""

from typing import Final

HANG_S: Final = 50.0  # no bound of a behaviour: a machine that others use takes its time, and a passing test none of it
PROCESS_S: Final = 120.0  # for what another process does: it starts Python first, and may load a model
LOADING_S: Final = 200.0  # for a service that measures its model, on a machine that other tests may be using
