"""What OpenAI's two older APIs have in common: one head for every object, and what a request may ask for beside the
text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from services.gateway.generation.choice import CommittedToken
from services.gateway.http.dialect import Identity
from services.gateway.requests.fields import GenerationFields

# JSON has no infinity; this is what OpenAI documents for "as good as impossible".
LOWEST_LOGPROB: Final = -9999.0
_encode: Final = msgspec.json.Encoder().encode


def head(identity: Identity, prefix: str, kind: str) -> dict[str, object]:
    """What every object of one response begins with."""
    model = identity.prepared.model
    return {
        "id": f"{prefix}{identity.id}",
        "object": kind,
        "created": identity.created,
        "model": model.name,
        "system_fingerprint": model.system_fingerprint,
    }


def traces(fields: GenerationFields, pieces: Sequence[CommittedToken]) -> dict[str, Any]:
    """The tokens' ids and sources, if the request asked for them."""
    asked: dict[str, Any] = {}
    if fields.return_token_ids:
        asked["token_ids"] = [piece.token for piece in pieces]
    if fields.speculative_trace:
        asked["trace"] = [piece.trace for piece in pieces]
    return asked


class Frames:
    """Frames with a common head, which is encoded once."""

    def __init__(self, head: Mapping[str, object]) -> None:
        self._start = b"data: " + _encode(head)[:-1] + b',"choices":['

    def choice(self, choice: Mapping[str, object], top: Mapping[str, object] | None = None) -> bytes:
        """A frame of one choice, with `top` beside the choices."""
        return self._start + _encode(choice) + b"]" + _members(top) + b"}\n\n"

    def empty(self, top: Mapping[str, object]) -> bytes:
        """A frame without choices."""
        return self._start + b"]" + _members(top) + b"}\n\n"


def _members(value: Mapping[str, object] | None) -> bytes:
    return b"," + _encode(value)[1:-1] if value else b""
