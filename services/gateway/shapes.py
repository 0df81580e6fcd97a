"""An error as the clients of each route expect it."""

from services.gateway.errors import ApiError


def shape(error: ApiError, path: str, request_id: str) -> dict[str, object]:
    """The body of a refusal on this path."""
    return error.body()
