"""That the verifier has a core of its own: figures of two sides on one core would measure their fight."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from services.launcher.fleet.cores import Cores
from services.launcher.fleet.stack import Stack, StackError


def move(cores: Cores) -> None:
    """Put all threads of this process on `cores`; some began elsewhere.

    numpy starts threads when it is imported, and asyncio starts one with each child, on the child's cores.
    """
    for thread in _threads(os.getpid()):
        os.sched_setaffinity(thread, cores)


def cores_of(pid: int) -> frozenset[int]:
    """The cores that any thread of a process may run on."""
    return frozenset(core for thread in _threads(pid) for core in os.sched_getaffinity(thread))


def _threads(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]


def assert_apart(stack: Stack, side: Mapping[str, int]) -> None:
    """Raise `StackError` if the verifier shares a core with any process of `side`, pids by name."""
    clash(cores_of(stack.verifier.pid), {name: cores_of(pid) for name, pid in side.items()})


def clash(engine: Iterable[int], side: Mapping[str, Iterable[int]]) -> None:
    """Raise `StackError` naming whoever may run on a core of the engine."""
    own = frozenset(engine)
    for name, cores in side.items():
        if shared := own & frozenset(cores):
            raise StackError(
                f"the {name} may run on the verifier's core {min(shared)}, so the figures would say nothing: this"
                " benchmark needs two cores that it may use"
            )
