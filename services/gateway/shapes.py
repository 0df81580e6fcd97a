"""An error as the clients of each route expect it."""

from typing import Final, Literal

from services.gateway.errors import ApiError

Family = Literal["openai", "anthropic", "ollama"]

_OLLAMA: Final = "/api/"


def family(path: str) -> Family:
    """Whose clients use this path."""
    return "ollama" if path.startswith(_OLLAMA) else "openai"


def shape(error: ApiError, path: str, request_id: str) -> dict[str, object]:
    """The body of a refusal on this path."""
    if family(path) == "ollama":
        return {"error": error.message}
    return error.body()
