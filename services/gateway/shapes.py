"""An error as the clients of each route expect it."""

from services.gateway.errors import ApiError

OLLAMA = "/api/"


def shape(error: ApiError, path: str, request_id: str) -> dict[str, object]:
    """The body of a refusal on this path."""
    if path.startswith(OLLAMA):
        return {"error": error.message}
    return error.body()
