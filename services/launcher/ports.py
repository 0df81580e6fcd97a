"""Ports that nobody listens on, found out before anything is started."""

import errno
import socket
from typing import Final

from shared.errors import StartError

_LOOPBACK: Final = "127.0.0.1"


def claim(host: str, port: int) -> int:
    """`port` if it can be bound on `host`, a free one for 0. Raises `StartError` naming --port or --host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            # As servers do: a port whose last connections are still closing is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            return int(listener.getsockname()[1])
    except (socket.gaierror, UnicodeError):
        raise StartError("--host", host, "no such host; an address of this machine, such as 127.0.0.1") from None
    except PermissionError:
        raise StartError("--port", port, "this user may not listen there; a port above 1023") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError("--port", port, "in use by another process; choose a free one, or 0") from None
        raise StartError("--host", host, f"cannot be listened on ({error.strerror})") from None


def answers(port: int) -> bool:
    """Whether something on this machine takes connections at `port`."""
    try:
        with socket.create_connection((_LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def claim_embedded(port: int) -> int:
    """`port` on the loopback for the embedded server, or a free one if it is 0 or taken."""
    try:
        return claim(_LOOPBACK, port)
    except StartError:
        return claim(_LOOPBACK, 0)
