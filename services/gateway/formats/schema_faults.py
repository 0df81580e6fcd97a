"""Which part of a JSON Schema cannot be enforced: its path and keyword, found by compiling smaller and smaller parts of
it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.requests.schemas import LISTS, MAPS, Path

Refusal = Callable[[Mapping[str, Any]], str]  # why a schema cannot be enforced; "" if it can

_SINGLES: Final = ("items", "additionalProperties")
_DEFINITIONS: Final = ("$defs", "definitions")
_FEW: Final = 16  # parts to try one by one; of more parts, half are tried together
_UNKNOWN: Final = re.compile(r'Unimplemented keys: \["([^"]+)"')


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a schema cannot be enforced, as steps from its root, the keyword last; and why, in one line."""

    path: Path
    reason: str


def find_fault(schema: Mapping[str, Any], refusal: Refusal) -> Fault | None:
    """The innermost part that is at fault, the first if there are several; None if the schema can be enforced."""
    return _Search(schema, refusal).run()


class _Search:
    def __init__(self, schema: Mapping[str, Any], refusal: Refusal) -> None:
        self._root = schema
        self._definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
        self._refusal = refusal

    def run(self) -> Fault | None:
        node, path = self._root, Path()
        reason = self._try(node)
        if not reason:
            return None
        seen = {path}
        while (step := self._descend(node, path, seen)) is not None:
            node, path, reason = step
            seen.add(path)
        keyword = self._keyword(node, reason)
        return Fault((*path, keyword) if keyword else path, _sentence(reason, keyword))

    def _descend(
        self, node: Mapping[str, Any], path: Path, seen: set[Path]
    ) -> tuple[Mapping[str, Any], Path, str] | None:
        """A part of `node` that is at fault by itself, its path from the root, and why."""
        parts = [(at, part) for at, part in self._parts(node, path) if at not in seen and _target(part) not in seen]
        while len(parts) > _FEW:
            half = len(parts) // 2
            parts = parts[:half] if self._try(_together(parts[:half])) else parts[half:]
        for at, part in parts:
            reason = self._try(part)
            if reason:
                return part, at, reason
        return None

    def _parts(self, node: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        target = _target(node)
        found = resolve(self._root, target) if target else None
        if target and isinstance(found, Mapping):
            yield target, found
        for keyword, value in node.items():
            parts: list[tuple[Path, object]] = []
            if keyword in MAPS and isinstance(value, Mapping):
                parts = [((keyword, name), part) for name, part in value.items()]
            elif keyword in LISTS and isinstance(value, list):
                parts = [((keyword, str(index)), part) for index, part in enumerate(value)]
            elif keyword in _SINGLES:
                parts = [((keyword,), value)]
            yield from (((*path, *steps), part) for steps, part in parts if isinstance(part, Mapping))

    def _try(self, part: Mapping[str, Any]) -> str:
        """Why a part cannot be enforced; keeps its references resolvable."""
        return self._refusal({**self._definitions, **part})

    def _keyword(self, node: Mapping[str, Any], reason: str) -> str:
        """The keyword without which it could be enforced."""
        unknown = _UNKNOWN.search(reason)
        if unknown is not None and unknown[1] in node:
            return unknown[1]
        for keyword in node:
            if not self._try({name: value for name, value in node.items() if name != keyword}):
                return keyword
        return ""


def _together(parts: Sequence[tuple[Path, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """A schema that cannot be enforced if one of the parts cannot."""
    properties = {str(index): part for index, (_, part) in enumerate(parts)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _target(node: Mapping[str, Any]) -> Path | None:
    """Where in the same schema `node` refers to."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    return pointer(reference)


def pointer(reference: str) -> Path:
    """The steps of a reference such as `#/$defs/node` (RFC 6901)."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in reference.removeprefix("#").split("/")[1:])


def resolve(root: Mapping[str, Any], path: Path) -> Any:
    """What `path` leads to; None if it leads to nothing."""
    at: Any = root
    for step in path:
        at = at.get(step) if isinstance(at, Mapping) else None
    return at


def _sentence(reason: str, keyword: str) -> str:
    if _UNKNOWN.search(reason):
        return f"keyword '{keyword}' is not supported"
    return one_line(reason)


def one_line(reason: str) -> str:
    """What llguidance says, without the excerpt of the source: the message after `error:`, or the first line."""
    message = re.search(r"^error: (.+)$", reason, re.MULTILINE)
    text = message[1] if message is not None else reason.strip().partition("\n")[0]
    return text.replace("<non-verbose/>", "").strip()[:300]
