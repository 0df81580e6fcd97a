"""Fleets in the local network by multicast DNS (RFC 6762, RFC 6763): announced by `up --lan`, found by `join`.

The announcement says where the fleet's Redis is and what it serves, and never the token. If multicast does not work,
`join` finds nothing and needs the address.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from zeroconf import Error as ZeroconfError
from zeroconf import EventLoopBlocked, IPVersion, NonUniqueNameException, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from services.launcher.fleet.fleet_notice import AnnouncedFleet

logging.getLogger("zeroconf").addHandler(logging.NullHandler())  # we report the warnings that matter

TYPE: Final = "_draftmesh._tcp.local."
SEARCH_S: Final = 3.0
_FLEETS: Final = 16  # fleets that we query at most; more in one network are a mistake or an attack
_FAILURES: Final = (OSError, ZeroconfError, NonUniqueNameException, EventLoopBlocked, TimeoutError)
_HOST: Final = 48  # bytes of the host's name in a label, which may have 63
_MOST: Final = 200  # bytes of a value: a TXT string holds 255 with its name


class MulticastUnavailable(RuntimeError):
    """Multicast does not work here; the message says why."""


@asynccontextmanager
async def announced(fleet: AnnouncedFleet) -> AsyncIterator[None]:
    """Answer searches for fleets while the block lasts. Raises `MulticastUnavailable` if the network forbids it."""
    info = AsyncServiceInfo(
        TYPE,
        f"{fleet.name}.{TYPE}",
        port=fleet.port,
        addresses=[socket.inet_pton(socket.AF_INET6 if ":" in fleet.host else socket.AF_INET, fleet.host)],
        properties={
            "version": version("draftmesh"),
            "model": fleet.model.encode()[:_MOST].decode(errors="ignore"),
            "gateway": str(fleet.gateway),
        },
        server=f"{socket.gethostname().partition('.')[0][:_HOST]}-{fleet.port}.local.",
    )
    try:
        service = AsyncZeroconf(interfaces=[fleet.host], ip_version=IPVersion.All if ":" in fleet.host else None)
    except _FAILURES as error:
        raise MulticastUnavailable(_reason(error)) from None
    try:
        try:
            await service.async_register_service(info, allow_name_change=True)
        except _FAILURES as error:
            raise MulticastUnavailable(_reason(error)) from None
        yield
    finally:
        await service.async_close()  # withdraws the announcement


async def search(seconds: float = SEARCH_S) -> list[AnnouncedFleet]:
    """The fleets that announce themselves in this network. Raises `MulticastUnavailable` if the network cannot be
    searched."""
    names: set[str] = set()

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed:
            names.add(name)

    try:
        service = AsyncZeroconf()
    except _FAILURES as error:
        raise MulticastUnavailable(_reason(error)) from None
    try:
        browser = AsyncServiceBrowser(service.zeroconf, TYPE, handlers=[changed])
        await asyncio.sleep(seconds)
        found = await asyncio.gather(*(_ask(service, name) for name in sorted(names)[:_FLEETS]))
        await browser.async_cancel()
    finally:
        await service.async_close()
    return sorted({fleet for fleet in found if fleet is not None})


async def _ask(service: AsyncZeroconf, name: str) -> AnnouncedFleet | None:
    info = AsyncServiceInfo(TYPE, name)
    if not await info.async_request(service.zeroconf, 1000):
        return None
    addresses = info.parsed_addresses()
    if not addresses or not info.port:
        return None
    said = {
        key.decode(errors="replace"): (value or b"").decode(errors="replace") for key, value in info.properties.items()
    }
    gateway = said.get("gateway", "")
    return AnnouncedFleet(
        name=_plain(name.removesuffix(f".{TYPE}")),
        host=addresses[0],
        port=info.port,
        model=_plain(said.get("model", "")),
        version=_plain(said.get("version", "")),
        gateway=int(gateway) if gateway.isdecimal() and len(gateway) < 6 else 0,
    )


def _plain(text: str) -> str:
    """Text from the network, made safe for a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)[:_MOST]


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
