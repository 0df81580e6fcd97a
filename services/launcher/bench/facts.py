"""Reads what a draftmesh gateway reports about its fleet; other servers have no such report.

From `/props` whether a server is ours, from `/status` its devices, models, cost of rows and drafters' counts.
"""

from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec
from msgspec import Struct

from services.launcher.bench.card import ReportedDrafter, ReportedVerifier
from services.launcher.bench.servers import Server
from shared.fleet.registry import HEARTBEAT_S

SETTLE_S: Final = HEARTBEAT_S + 1.0  # until the gateway's report includes everything that happened
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)


class VerifierFacts(ReportedVerifier, frozen=True, kw_only=True):
    """A process that owns the target."""

    id: str


class DrafterFacts(ReportedDrafter, frozen=True, kw_only=True):
    """A drafter's counts for one verifier, since it began to draft for it."""

    id: str
    verifier: str | None
    refused: str | None


class FleetFacts(Struct, frozen=True, kw_only=True):
    """The part of `/status` that a measurement needs; unknown keys are ignored."""

    verifiers: tuple[VerifierFacts, ...] = ()
    drafters: tuple[DrafterFacts, ...] = ()


class _Properties(Struct):
    build_info: str = ""


async def is_ours(http: aiohttp.ClientSession, server: Server) -> bool:
    """Whether it is draftmesh, and so can be asked to answer without drafts."""
    found = await _get(http, server, "props")
    try:
        return found is not None and msgspec.json.decode(found, type=_Properties).build_info == "draftmesh"
    except msgspec.DecodeError:
        return False


async def read(http: aiohttp.ClientSession, server: Server) -> FleetFacts | None:
    """The fleet now; None if the server does not report one."""
    found = await _get(http, server, "status")
    if found is None:
        return None
    try:
        fleet = msgspec.json.decode(found, type=FleetFacts, strict=False)
    except msgspec.DecodeError:
        return None
    return fleet if fleet.verifiers else None


async def _get(http: aiohttp.ClientSession, server: Server, path: str) -> bytes | None:
    query = {"model": server.model} if path == "props" else {}
    try:
        async with http.get(
            server.address.url / path,
            params=query,
            headers={**server.address.headers, "Accept": "application/json"},
            allow_redirects=False,
            timeout=_TIMEOUT,
        ) as response:
            return await response.read() if response.status == 200 else None
    except (TimeoutError, aiohttp.ClientError):
        return None


def since(before: FleetFacts | None, after: FleetFacts | None) -> FleetFacts | None:
    """`after` with drafters' counts only of the time since `before`; those that restarted meanwhile count as new."""
    if before is None or after is None:
        return None
    known: Mapping[tuple[str, str | None], DrafterFacts] = {(one.id, one.verifier): one for one in before.drafters}
    drafters = tuple(_since(known.get((one.id, one.verifier)), one) for one in after.drafters)
    return msgspec.structs.replace(after, drafters=drafters)


def _since(before: DrafterFacts | None, after: DrafterFacts) -> DrafterFacts:
    if before is None or before.drafted > after.drafted:
        return after
    return msgspec.structs.replace(
        after,
        drafted=after.drafted - before.drafted,
        accepted=after.accepted - before.accepted,
        added=after.added - before.added,
    )
