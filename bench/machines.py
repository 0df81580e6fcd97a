"""Two machines on this one: network namespaces, and between them a wire whose length is a delay.

The wire is a TAP device on each side and a thread that carries frames over, broadcasts and multicasts too, so it needs
neither netem nor a bridge of the kernel's. Needs root; nothing is left behind.
"""

import ctypes
import fcntl
import itertools
import os
import select
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

ADDRESSES: Final = ("10.77.83.1", "10.77.83.2")  # of the two, in a network of their own
_CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
_TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h
_TAP, _NO_PI = 0x0002, 0x1000
_DEVICE: Final = "lan"
_FRAME: Final = 65536
_numbers = itertools.count()


class NotPermittedError(RuntimeError):
    """Machines cannot be made here; the message says what failed."""


@contextmanager
def machines(apart_ms: float) -> Iterator[tuple[str, str]]:
    """Two namespaces with a round trip of `apart_ms` between them. Raises `NotPermittedError`."""
    label = f"{os.getpid()}-{next(_numbers)}"
    names = (f"draftmesh-a-{label}", f"draftmesh-b-{label}")
    with ExitStack() as stack:
        ends = []
        for name, address in zip(names, ADDRESSES, strict=True):
            _run("ip", "netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True, check=False)
            ends.append(_end(name))
            stack.callback(os.close, ends[-1])
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", _DEVICE)
            _run("ip", "-n", name, "link", "set", _DEVICE, "up")
        stack.enter_context(_wire(ends[0], ends[1], apart_ms / 2000))
        yield names


def on_machine(name: str, action: Callable[[], T]) -> T:
    """What `action` gives in the network of that machine; other threads stay in theirs."""

    def there() -> T:
        with open(f"/run/netns/{name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return action()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip()
        raise NotPermittedError(f"{' '.join(command)}: {said}") from None


def _end(name: str) -> int:

    def attach() -> int:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH14x", _DEVICE.encode(), _TAP | _NO_PI))
        return end

    try:
        return on_machine(name, attach)
    except OSError as error:
        raise NotPermittedError(f"/dev/net/tun: {error.strerror}") from None


@contextmanager
def _wire(one: int, other: int, delay_s: float) -> Iterator[None]:
    """Carry every frame from either end to the other one, `delay_s` later and in order, for as long as it lasts."""
    woken, waker = os.pipe()
    carrier = threading.Thread(target=_carry, args=(one, other, delay_s, woken), daemon=True)
    carrier.start()
    try:
        yield
    finally:
        os.close(waker)
        carrier.join(10)
        os.close(woken)


def _carry(one: int, other: int, delay_s: float, woken: int) -> None:
    across = {one: other, other: one}
    under_way: deque[tuple[float, int, bytes]] = deque()  # due times rise, for all frames take equally long
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([one, other, woken], [], [], wait_s)
        if woken in readable:
            return
        for end in readable:
            under_way.append((time.monotonic() + delay_s, across[end], os.read(end, _FRAME)))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            os.write(end, frame)
