"""A class name means one thing: public classes of the product have names of their own, which no benchmark takes."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
PRODUCT: Final = ("services", "shared", "install")


def _public_classes(folder: str) -> list[tuple[str, str]]:
    """(name, file:line) of each public class of a module below `folder`."""
    return [
        (node.name, f"{path.relative_to(ROOT)}:{node.lineno}")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


@pytest.fixture(scope="module")
def product() -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for folder in PRODUCT:
        found = _public_classes(folder)
        assert found, f"{folder} has no classes, so this rule proves nothing about it"
        for name, place in found:
            places[name].append(place)
    return dict(places)


def test_no_two_classes_of_the_product_have_one_name(product: dict[str, list[str]]) -> None:
    assert not {name: places for name, places in product.items() if len(places) > 1}


def test_no_benchmark_takes_the_name_of_a_class_of_the_product(product: dict[str, list[str]]) -> None:
    benchmarks = _public_classes("bench")
    assert benchmarks
    assert not {place: product[name] for name, place in benchmarks if name in product}
