"""Puts the pieces of a stream together, as clients do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any


def joined(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the pieces of an object add up to, member by member.

    Texts and lists follow each other, and objects are joined in turn. Of other values the last that is not null counts.
    """
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in piece.items():
            found.setdefault(name, []).extend([] if value is None else [value])
    return {name: _join(values) for name, values in found.items()}


def _join(values: Sequence[Any]) -> Any:
    match values:
        case []:
            return None
        case [str(), *_]:
            return "".join(values)
        case [list(), *_]:
            return list(chain.from_iterable(values))
        case [dict(), *_]:
            return joined(values)
        case _:
            return values[-1]
