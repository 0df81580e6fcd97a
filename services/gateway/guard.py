"""API keys: a request passes if it carries one of them; the comparison takes the same time for any wrong key."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from services.gateway.errors import ApiError


class Guard:
    """Knows digests only. Without keys everyone passes."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def check(self, headers: Mapping[str, str]) -> str:
        """Who calls: a digest of the key, the same for the same key, "" without one.

        Raises a 401 `ApiError` unless `Authorization: Bearer` or `x-api-key` carries a known key.
        """
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        given = [headers.get("x-api-key", "")]
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        if not self._digests:
            return next((_digest(key).hex() for key in given if key), "")
        # No early exit: every given key is compared with every known one.
        matches = [known for key in given for known in self._digests if hmac.compare_digest(_digest(key), known)]
        if not matches:
            raise ApiError(
                401,
                "A valid API key is required, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                kind="authentication_error",
                code="invalid_api_key",
            )
        return matches[0].hex()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
