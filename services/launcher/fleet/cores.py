"""Which cores a child and all its threads run on, if the system supports it; else nothing happens."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Cores = Sequence[int]


def halves() -> tuple[Cores, Cores]:
    """The cores that this process may use in two halves, for the target and for everything else."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if len(cores) == 1:
        return cores, cores
    return cores[: len(cores) // 2], cores[len(cores) // 2 :]


def one_each() -> tuple[Cores, Cores]:
    """One core for the target and one for everything else; moves this process, which is a client, to the second."""
    engine, side = (half[:1] for half in halves())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, side)
    return engine, side


@contextmanager
def forking_on(cores: Cores) -> Iterator[None]:
    """Put this thread on `cores` while it forks: the child inherits it before it can start a thread of its own."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
