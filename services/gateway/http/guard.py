"""Lets in requests with a known API key; refusing any wrong key takes the same time.

Without keys only programs of this machine can connect. These include browsers with pages of other sites, so a page must
come from this machine too.
"""

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from services.gateway.errors import ApiError
from shared.process.api_keys import digest, on_loopback


class Guard:
    """Knows only digests. Without any, everyone who can connect passes; with `anyone` even pages of other sites."""

    def __init__(self, digests: Iterable[bytes], anyone: bool = False) -> None:
        self._digests = list(digests)
        self._anyone = anyone

    def replace(self, digests: Iterable[bytes]) -> None:
        self._digests = list(digests)

    def check(self, headers: Mapping[str, str]) -> str:
        """The caller: a digest of the key, always the same for one key; "" without a key.

        Raises a 401 `ApiError` unless `Authorization: Bearer` or `x-api-key` carries a known key, and a 403 for a page
        of another site if no keys are set.
        """
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        given = [headers.get("x-api-key", "")]
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        if not self._digests:
            self._check_origin(headers.get("Origin", ""))
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

    def _check_origin(self, origin: str) -> None:
        if self._anyone or not origin or _is_local(origin):
            return
        raise ApiError(
            403,
            "Pages of other sites may not use a gateway without API keys; set a key, or start it with --no-auth.",
            kind="permission_error",
            code="origin_not_allowed",
        )


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


def _is_address(host: str) -> bool:
    return all(part.isdigit() for part in host.split(".")) or ":" in host
