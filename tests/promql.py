"""What a PromQL expression asks for."""

from collections.abc import Iterator
from typing import Any, cast

import promql_parser


def nodes(expression: str) -> list[Any]:
    """Every node of the expression. Raises `ValueError` if it is none."""
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), cast(Any, found.append))
    return found


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The metrics of the expression with what their labels must be."""
    for node in nodes(expression):
        if isinstance(node, promql_parser.VectorSelector):
            yield str(node.name), {one.name: one.value for one in node.matchers.matchers}


def grouped(expression: str) -> set[str]:
    """The labels that it aggregates by."""
    found: set[str] = set()
    for node in nodes(expression):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found |= set(node.modifier.labels)
    return found


def added_up(expression: str) -> list[str]:
    """The metrics whose series it sums as they are, without making one of several before."""
    return [name for node in nodes(expression) if _sums(node) for name in _directly_in(node.expr)]


def _sums(node: Any) -> bool:
    return isinstance(node, promql_parser.AggregateExpr) and str(node.op) == "sum"


def _directly_in(node: Any) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield str(node.vector_selector.name)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _directly_in(argument)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from _directly_in(node.lhs)
        yield from _directly_in(node.rhs)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from _directly_in(node.expr)
