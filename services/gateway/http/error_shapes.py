"""Errors in the shape that the clients of each route expect."""

from collections.abc import Iterable
from typing import Final, Literal

from services.gateway.errors import ApiError
from services.gateway.http import anthropic_errors

Family = Literal["openai", "anthropic", "ollama"]

_OLLAMA: Final = "/api/"


def family(path: str) -> Family:
    """Whose clients use this path."""
    if path.startswith(_OLLAMA):
        return "ollama"
    first = path.removeprefix("/v1").removeprefix("/").partition("/")[0]
    return "anthropic" if first == "messages" else "openai"


def statuses(of: Family, found: Iterable[int]) -> set[int]:
    """The statuses that these clients get for these."""
    return {anthropic_errors.renumbered(status) if of == "anthropic" else status for status in found}


def shape(error: ApiError, path: str, request_id: str) -> tuple[int, dict[str, object]]:
    """The status and the body of a refusal on this path."""
    match family(path):
        case "anthropic":
            return anthropic_errors.status(error), anthropic_errors.body(error, request_id)
        case "ollama":
            return error.status, {"error": error.message}
    return error.status, error.body()
