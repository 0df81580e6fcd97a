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
_WANTS_KEY: Final = (401, 403)


async def find(url: str, key: str, model: str) -> Serving:
    """The gateway at `url` with `model`; if that is empty, with its default model, else the first that it lists.

    Raises `StartError` if nothing answers there, the key is refused, or the model is not served.
    """
    base = address(url)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as http,
            http.get(f"{base}/v1/models", headers=headers, allow_redirects=False) as response,
        ):
            status, body = response.status, await response.read()
    except TimeoutError:
        raise StartError("--url", base, f"no answer within {_ANSWER_S:.0f} s") from None
    except aiohttp.ClientError as error:
        cause = f"cannot be reached ({_cause(error)})"
        raise StartError("--url", base, f"{cause}; draftmesh up starts a gateway there") from None
    if status in _WANTS_KEY:
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
    try:
        parsed = URL(url if "://" in url else f"http://{url}")
        known = parsed.scheme in ("http", "https") and bool(parsed.host) and not parsed.user
    except ValueError:
        known = False
    if not known:
        raise StartError("--url", re.sub(r"//[^/@]*@", "//…@", url), "an address such as http://127.0.0.1:7071")
    # Users paste the address from their client's configuration, which often ends in /v1.
    path = re.sub(r"/v1$", "", parsed.path.rstrip("/"))
    return str(parsed.with_path(path).with_query(None)).rstrip("/")


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


def _cause(error: aiohttp.ClientError) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
