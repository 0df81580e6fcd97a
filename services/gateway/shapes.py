"""An error as the clients of each route expect it."""

from services.gateway import messages_errors
from services.gateway.errors import ApiError


def shape(error: ApiError, path: str, request_id: str) -> tuple[int, dict[str, object]]:
    """The status and the body of a refusal on this path."""
    first = path.removeprefix("/v1").removeprefix("/").partition("/")[0]
    if first == "messages":
        return messages_errors.status(error), messages_errors.body(error, request_id)
    return error.status, error.body()
