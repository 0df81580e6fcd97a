"""What the pages read from source text: calls by the name of what is called. No module is run for it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("services", "shared")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, its function's name without what comes before the last dot, and the file that it stands in."""

    name: str
    node: ast.Call
    file: str
    constants: Mapping[str, object]  # of its module

    def argument(self, index: int, name: str = "") -> str:
        """The argument at a place or with a name as text, if it is a literal or its module's name for one."""
        given = {keyword.arg: keyword.value for keyword in self.node.keywords}
        places = dict(enumerate(self.node.args))
        node = given.get(name) or places.get(index)
        value = self.constants.get(node.id) if isinstance(node, ast.Name) else literal(node)
        return "" if value is None else str(value)

    def has(self, index: int, name: str) -> bool:
        """Whether this argument is given at all."""
        return index < len(self.node.args) or any(keyword.arg == name for keyword in self.node.keywords)


def calls() -> Iterator[Call]:
    """Every call in the product, in the order of files and lines."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            tree = ast.parse(path.read_text())
            named = constants(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    function = node.func
                    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                    yield Call(name, node, file, named)


def constants(tree: ast.Module) -> dict[str, object]:
    """A module's names for literals."""
    found: dict[str, object] = {}
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = literal(getattr(node, "value", None))
        found |= {target.id: value for target in targets if isinstance(target, ast.Name) and value is not None}
    return found


def literal(node: ast.expr | None) -> object:
    """The value of a literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None
