"""Servers to measure: their names on the command line, and what they report before the first answer.

Each key or password is sent only to its own server, and never shown.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp
from yarl import URL

from services.launcher.clients import serving
from shared.errors import StartError

_NAMED: Final = re.compile(r"([^=:/]+)=(.+)")
PLAIN: Final = "plain"  # how a server that answers without drafts is called


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A server as the user gave it; `url` is the address before /v1."""

    name: str
    url: URL = field(repr=False)
    key: str = field(default="", repr=False)
    model: str = ""  # empty: the first that the server lists
    named: bool = False  # by the user

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers, and the model that it is asked for."""

    address: ServerAddress
    model: str
    software: str  # what the server calls itself; may be empty
    plain: bool = False  # it is asked to answer without drafts, which draftmesh can

    @property
    def name(self) -> str:
        return self.address.name


def addresses(url: str, others: Sequence[str], keys: Sequence[str], models: Sequence[str]) -> list[ServerAddress]:
    """All servers, the first argument first. Keys and models belong to them in order. Raises `StartError`."""
    options = ["URL", *("--compare" for _ in others)]
    for option, values in (("--api-key", keys), ("--model", models)):
        if len(values) > len(options):
            raise StartError(option, f"({len(values)} times)", f"one per server, in order; here: {len(options)}")
    found = [
        _address(option, text, _at(keys, index), _at(models, index))
        for index, (option, text) in enumerate(zip(options, [url, *others], strict=True))
    ]
    names = [address.name for address in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StartError("--compare", twice, "two servers have this name; tell them apart with NAME=URL")
    return found


def _at(values: Sequence[str], index: int) -> str:
    return values[index] if index < len(values) else ""


def _address(option: str, text: str, key: str, model: str) -> ServerAddress:
    match = _NAMED.fullmatch(text)
    name, rest = match.groups() if match else ("", text)
    wanted = "an address such as http://127.0.0.1:8080, or NAME=URL"
    url = serving.parse(rest)
    if url is None:
        raise StartError(option, serving.without_password(text), wanted)
    if key and url.user:
        raise StartError("--api-key", "(not shown)", f"{url.host} has a password in its URL already; give one of them")
    name = name.strip()
    return ServerAddress(name=name or f"{url.host}:{url.port}", url=url, key=key, model=model, named=bool(name))


def without_drafts(server: Server, taken: Sequence[str]) -> Server:
    """The same server, to be measured once more without drafts, under a name that is not in `taken`."""
    name = PLAIN if PLAIN not in taken else f"{server.name} {PLAIN}"
    return replace(server, address=replace(server.address, name=name), plain=True)


async def connect(http: aiohttp.ClientSession, address: ServerAddress) -> Server:
    """Ask the server for its models. Raises `StartError` if it does not answer, refuses the key, or has no model."""
    option = "server"
    try:
        status, body, software = await serving.list_models(http, address.url, address.key)
    except TimeoutError:
        raise StartError(option, address.name, "does not answer in time (--timeout)") from None
    except aiohttp.ClientError as error:
        cause = f"cannot be reached ({serving.cause_of(error)})"
        raise StartError(option, address.name, f"{cause}; is it running? draftmesh up starts ours") from None
    if status in serving.WANTS_KEY:
        raise StartError(option, address.name, f"refuses the key (HTTP {status}); --api-key takes one per server")
    model = address.model or _first_model(body if status == 200 else b"")
    if not model:
        raise StartError(
            option, address.name, f"lists no model at /v1/models (HTTP {status}); name one with --model, if it has one"
        )
    return Server(address=address, model=model, software=software)


def _first_model(body: bytes) -> str:
    try:
        models: Any = json.loads(body)["data"]
        return next(str(model["id"]) for model in models)
    except (ValueError, LookupError, TypeError, StopIteration):
        return ""
