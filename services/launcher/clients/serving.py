"""Asks a running gateway over HTTP what it serves, as a client would."""

import json
import os
import re
from typing import Any, Final

import aiohttp
from yarl import URL

from services.launcher.clients.catalogue import NO_KEY, Serving
from shared.errors import StartError
from shared.fleet.model_names import DEFAULT

_ANSWER_S: Final = 10.0
WANTS_KEY: Final = (401, 403)


async def find(url: str, key: str, model: str) -> Serving:
    """The gateway at `url` with `model`; if that is empty, with its default model, else the first that it lists.

    Raises `StartError` if nothing answers there, the key is refused, or the model is not served.
    """
    base = address(url)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as http:
            status, body, _ = await list_models(http, URL(base), key)
    except TimeoutError:
        raise StartError("--url", base, f"no answer within {_ANSWER_S:.0f} s") from None
    except aiohttp.ClientError as error:
        cause = f"cannot be reached ({cause_of(error)})"
        raise StartError("--url", base, f"{cause}; draftmesh up starts a gateway there") from None
    if status in WANTS_KEY:
        raise StartError("--api-key", "(not shown)", f"{base} refuses this key (HTTP {status})")
    served, default = _models(body) if status == 200 else ({}, "")
    if not served:
        raise StartError("--url", base, f"serves no model now (HTTP {status})")
    name = model or default or next(iter(served))
    if name not in served:
        raise StartError("--model", model, f"not served there; served are {', '.join(served)}")
    return Serving(url=base, model=name, n_ctx=served[name], key=key or NO_KEY)


def address(url: str) -> str:
    """The gateway's base address, without /v1 and a slash at the end. Raises `StartError`."""
    parsed = parse(url)
    if parsed is None or parsed.user:
        raise StartError("--url", without_password(url), "an address such as http://127.0.0.1:7071")
    return str(parsed).rstrip("/")


def parse(text: str) -> URL | None:
    """The address of a server, before /v1; None if the text is none."""
    try:
        url = URL(text if "://" in text else f"http://{text}")
        known = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
    except ValueError:
        return None
    # Users paste the address from their client's configuration, which often ends in /v1.
    path = re.sub(r"/v1(/chat/completions)?$", "", url.path.rstrip("/"))
    return url.with_path(path or "/") if known else None


def without_password(address: str) -> str:
    """An address in the form for a message."""
    return re.sub(r"//[^/@]*@", "//…@", address)


async def list_models(http: aiohttp.ClientSession, url: URL, key: str) -> tuple[int, bytes, str]:
    """The status and body of the answer to /v1/models, and what the server calls itself. Raises aiohttp's errors."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with http.get(url / "v1/models", headers=headers, allow_redirects=False) as response:
        return response.status, await response.read(), response.headers.get("Server", "")


def _models(body: bytes) -> tuple[dict[str, int], str]:
    """Context sizes by name, in the order of the list, and the model that is called "default"; "" if none is."""
    try:
        rows: Any = json.loads(body)["data"]
        sizes = {str(row["id"]): int(row["max_model_len"]) for row in rows}
        roots = {str(row["id"]): str(row.get("root", "")) for row in rows}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}, ""
    default = roots.get(DEFAULT, "")
    return sizes, default if default in sizes else ""


def cause_of(error: aiohttp.ClientError) -> str:
    """Why a server cannot be reached, in a few words."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
