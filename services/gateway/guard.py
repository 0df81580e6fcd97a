"""API keys: a request passes if it carries one of them; the comparison takes the same time for any wrong key."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from services.gateway.errors import ApiError


class Guard:
    """Knows digests only. Without keys everyone passes."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises a 401 `ApiError` unless `Authorization: Bearer` or `x-api-key` carries a known key."""
        if not self._digests:
            return
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        given = [headers.get("x-api-key", "")]
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        # No early exit: every given key is compared with every known one.
        matches = [hmac.compare_digest(_digest(key), known) for key in given for known in self._digests]
        if not any(matches):
            raise ApiError(
                401,
                "A valid API key is required, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                kind="authentication_error",
                code="invalid_api_key",
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
