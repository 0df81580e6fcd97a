"""Errors in the shape that the clients of each route expect.

Anthropic's types by status are those of its API documentation ("Errors").
"""

from collections.abc import Iterable
from typing import Final, Literal

from services.gateway.errors import ApiError

Family = Literal["openai", "anthropic", "ollama"]

NO_THREADS: Final = "thread_unsupported_request"  # on which Anthropic's client sends the whole history instead
_OLLAMA: Final = "/api/"
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    499: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def family(path: str) -> Family:
    """Whose clients use this path."""
    if path.startswith(_OLLAMA):
        return "ollama"
    first = path.removeprefix("/v1").removeprefix("/").partition("/")[0]
    return "anthropic" if first == "messages" else "openai"


def statuses(of: Family, found: Iterable[int]) -> set[int]:
    """The statuses that these clients get for these."""
    return {_renumbered(status) if of == "anthropic" else status for status in found}


def _renumbered(status: int) -> int:
    """An overloaded server answers 529 to Anthropic's clients, not 503."""
    return 529 if status == 503 else status


def shape(error: ApiError, path: str, request_id: str) -> tuple[int, dict[str, object]]:
    """The status and the body of a refusal on this path."""
    match family(path):
        case "anthropic":
            return _renumbered(error.status), anthropic(error, request_id)
        case "ollama":
            return error.status, {"error": error.message}
    return error.status, error.body()


def anthropic(error: ApiError, request_id: str | None = None) -> dict[str, object]:
    """`{"type": "error", "error": {"type", "message"}, "request_id"}`, in a stream without a request id."""
    code = _renumbered(error.status)
    kind = _TYPES.get(code, "api_error" if code >= 500 else "invalid_request_error")
    details = {"details": {"error_code": error.code, "unsupported": ["thread"]}} if error.code == NO_THREADS else {}
    named = {} if request_id is None else {"request_id": request_id}
    return {"type": "error", "error": {"type": kind, "message": error.message, **details}, **named}
