"""Each piece of state in verifier and drafter has one writer: a module assigns only fields of its own classes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import services.drafter
import services.verifier

MODULES = [
    path for service in (services.drafter, services.verifier) for path in sorted(Path(service.__path__[0]).glob("*.py"))
]


def written(tree: ast.Module) -> Iterator[ast.Attribute]:
    """The fields that the module assigns or deletes, or of which it does so with an entry."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            field = node.value if isinstance(node, ast.Subscript) else node
            if isinstance(field, ast.Attribute):
                yield field


def own_fields(tree: ast.Module) -> set[str]:
    """The fields that the module's classes declare or set on themselves."""
    declared = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return declared | {field.attr for field in written(tree) if ast.unparse(field.value) == "self"}


def test_a_foreign_write_is_found() -> None:
    tree = ast.parse(
        "class A:\n    a: int\n\ndef f(one, other):\n    one.a = 1\n    other.b += 1\n    other.c[2] = 3\n"
    )
    assert {field.attr for field in written(tree)} - own_fields(tree) == {"b", "c"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_module_writes_only_fields_of_its_own_classes(path: Path) -> None:
    tree = ast.parse(path.read_text())
    own = own_fields(tree)
    assert not [ast.unparse(field) for field in written(tree) if field.attr not in own]
