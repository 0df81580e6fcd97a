"""Errors as Anthropic's clients expect them: `{"type": "error", "error": {"type", "message"}, "request_id"}`.

Types by status are those of Anthropic's API documentation ("Errors").
"""

from typing import Final

from services.gateway.errors import ApiError

NO_THREADS: Final = "thread_unsupported_request"  # on which Anthropic's client sends the whole history instead
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


def status(error: ApiError) -> int:
    """The HTTP status."""
    return renumbered(error.status)


def renumbered(status: int) -> int:
    """An overloaded server answers 529 here, not 503."""
    return 529 if status == 503 else status


def body(error: ApiError, request_id: str | None = None) -> dict[str, object]:
    """The error object, in a stream without a request id."""
    code = status(error)
    kind = _TYPES.get(code, "api_error" if code >= 500 else "invalid_request_error")
    details = {"details": {"error_code": error.code, "unsupported": ["thread"]}} if error.code == NO_THREADS else {}
    named = {} if request_id is None else {"request_id": request_id}
    return {"type": "error", "error": {"type": kind, "message": error.message, **details}, **named}
