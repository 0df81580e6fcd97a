"""Addresses and ports of this machine: finds free ones before anything starts, and asks later who listens there."""

import asyncio
import errno
import ipaddress
import socket
from typing import Any, Final

from shared.errors import StartError

LOOPBACK: Final = "127.0.0.1"
_ELSEWHERE: Final = ("192.0.2.1", 9)  # a documentation address: the route is looked up, nothing is sent


def claim(host: str, port: int, host_option: str = "--host") -> int:
    """`port` if it can be bound on `host`, a free one for 0. Raises `StartError` naming one of the options."""
    family, address = _lookup(host, port, host_option)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            # As servers do: a port whose last connections are still closing counts as free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            return int(listener.getsockname()[1])
    except PermissionError:
        raise StartError("--port", port, "this user may not listen there; choose a port above 1023") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError("--port", port, "in use by another process; choose a free one, or 0") from None
        raise StartError(host_option, host, f"cannot listen there ({error.strerror})") from None


def claim_embedded(port: int, host: str = LOOPBACK, host_option: str = "--host") -> int:
    """`port` on `host` for the embedded server, or a free one if it is 0 or taken."""
    claim(host, 0, host_option)  # a host that is not this machine is an error for any port
    try:
        return claim(host, port)
    except StartError:
        return claim(host, 0)


def resolve(host: str, option: str) -> str:
    """The numeric address of `host`. Raises `StartError` naming `option`."""
    return str(_lookup(host, 0, option)[1][0])


def in_url(host: str) -> str:
    """`host` in the form for a URL."""
    return f"[{host}]" if ":" in host else host


async def answers(port: int) -> bool:
    """Whether a server of this machine accepts connections at `port`."""
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _lookup(host: str, port: int, option: str) -> tuple[socket.AddressFamily, Any]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise StartError(option, host, "no such host; an address of this machine, such as 127.0.0.1") from None
    return family, address


def own_address() -> str:
    """This machine's address on the default route, else in the first network.

    Empty if it has only the loopback.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return next(iter(_networks()), "")


def address_of(host: str) -> str:
    """`host`, or this machine's address in the network if `host` means all addresses."""
    if not ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        return host
    return own_address() or socket.gethostname()


def _networks() -> list[str]:
    import ifaddr

    found = [str(ip.ip) for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4]
    return [ip for ip in found if not ipaddress.ip_address(ip).is_loopback]
