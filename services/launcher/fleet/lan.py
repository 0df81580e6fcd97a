"""Finds the address by which other machines of the network reach this one."""

import ipaddress
import socket
from typing import Final

_ELSEWHERE: Final = ("192.0.2.1", 9)  # a documentation address: the route is looked up, nothing is sent


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
