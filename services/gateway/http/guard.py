"""Lets in requests with a known API key; refusing any wrong key takes the same time.

Without keys only programs of this machine can connect. These include browsers with pages of other sites, so a page must
come from this machine too (`Origin`), and so must the name by which the browser reached the gateway (`Host`): the owner
of a name can let it point to this machine at any moment, and his page then reads answers as those of its own site.
"""

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from services.gateway.errors import ApiError
from shared.process.api_keys import digest, on_loopback


class Guard:
    """Knows only digests. Without any, everyone who can connect passes; with `anyone` even pages of other sites.

    Call `admit` for every request, and `check` for those that need a key.
    """

    def __init__(self, digests: Iterable[bytes], anyone: bool = False) -> None:
        self._digests = list(digests)
        self._anyone = anyone

    def replace(self, digests: Iterable[bytes]) -> None:
        self._digests = list(digests)

    def admit(self, headers: Mapping[str, str]) -> None:
        """Raise a 403 `ApiError` for a page of another site if no keys are set."""
        if self._digests or self._anyone:
            return
        origin = headers.get("Origin", "")
        if origin and not _is_local(origin):
            raise _foreign("Pages of other sites may not use a gateway without API keys", "origin_not_allowed")
        if not _is_out_of_reach(headers.get("Host", "")):
            sentence = (
                "A gateway without API keys answers only if the Host is an address, localhost, a name without a dot or"
                " one under .internal"
            )
            raise _foreign(sentence, "host_not_allowed")

    def check(self, headers: Mapping[str, str]) -> str:
        """The caller: a digest of the key, always the same for one key; "" without a key.

        Raises a 401 `ApiError` unless `Authorization: Bearer` or `x-api-key` carries a known key, or no keys are set.
        """
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        given = [headers.get("x-api-key", "")]
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        if not self._digests:
            return next((digest(key).hex() for key in given if key), "")
        # No early exit: every given key is compared with every known one.
        matches = [known for key in given for known in self._digests if hmac.compare_digest(digest(key), known)]
        if not matches:
            raise ApiError(
                401,
                "A valid API key is required, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                kind="authentication_error",
                code="invalid_api_key",
            )
        return matches[0].hex()


def _foreign(sentence: str, code: str) -> ApiError:
    return ApiError(403, f"{sentence}; set a key, or start it with --no-auth.", kind="permission_error", code=code)


def _is_local(origin: str) -> bool:
    """Whether the origin is a page of this machine, or an installed program instead of a web page."""
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme in ("http", "https"):
        # Names are not resolved, because the owner of a name can change its address at any moment.
        return host == "localhost" or host.endswith(".localhost") or (_is_address(host) and on_loopback(host))
    return bool(parts.scheme)  # app://, vscode-webview://; "null" has none: any page can become that


def _is_out_of_reach(host: str) -> bool:
    """Whether no outsider can let the name in this `Host` header point to this machine.

    Browsers always send the header. An address is what they connected to. Names without a dot and those under
    `.internal`, such as `host.docker.internal`, are not in the public DNS.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    return "." not in name or name.endswith((".localhost", ".internal")) or _is_address(name)


def _is_address(host: str) -> bool:
    return all(part.isdigit() for part in host.split(".")) or ":" in host
