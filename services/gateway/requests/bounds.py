"""Bounds on a request's size: on what the event loop iterates over, and on what would keep a thread busy for minutes.

They are far above what clients send and what a context holds. A request beyond one gets a 400 that names it. Pure.
"""

from typing import Any, Final

from services.gateway.errors import invalid

MAX_DEPTH: Final = 128  # levels of lists and objects; JSON Schemas of tools have some ten
MAX_CONTAINERS: Final = 100_000  # lists and objects in one body; a thousand tool calls are some five thousand
MAX_ITEMS: Final[dict[str, int]] = {"messages": 10_000, "input": 100_000, "tools": 1_024, "functions": 1_024}
MAX_TOKENS: Final = 1 << 20  # token ids in one list
MIN_CHARACTERS: Final = 1 << 20  # a text this short is never refused unread


def check_shape(payload: dict[str, Any]) -> None:
    """Raise a 400 `ApiError` for a body that is too deep or holds too many things."""
    for name, most in MAX_ITEMS.items():
        value = payload.get(name)
        if isinstance(value, list) and len(value) > most:
            raise invalid(name, f"'{name}' has {len(value)} items; at most {most} are allowed.", "too_many_items")
    level: list[Any] = [payload]
    containers = depth = 0
    while level:
        depth += 1
        containers += len(level)
        if depth > MAX_DEPTH:
            raise invalid(None, f"The body is nested more than {MAX_DEPTH} levels deep.", "too_deep")
        if containers > MAX_CONTAINERS:
            raise invalid(None, f"The body holds more than {MAX_CONTAINERS} lists and objects.", "too_many_items")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]


def check_length(param: str, n_ctx: int, longest: int, characters: int) -> None:
    """Raise a 400 `ApiError` for text that cannot fit, given the length of the longest token, before it is tokenised.

    Tokenising takes seconds for a megabyte.
    """
    if characters > max(MIN_CHARACTERS, n_ctx * longest):
        raise invalid(
            param,
            f"prompt is too long: {characters} characters > {n_ctx} tokens maximum, of {longest} bytes at most.",
            "context_length_exceeded",
        )
