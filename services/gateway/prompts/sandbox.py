"""A Jinja sandbox in which a template can neither run for ever nor fill the memory.

Jinja's own sandbox keeps templates from Python's internals but bounds neither time nor memory. Here every loop and call
checks the clock, and operations that make much from little are bounded before they run: repetition, joining, replacing,
padding, powers, and formats with a width.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, cast

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

TIME_S: Final = 5.0  # a conversation of a megabyte takes a tenth of a second
CHARACTERS: Final = 64 << 20  # of any intermediate text and of the rendered one; a request has 32 MiB at most
NUMBER: Final = 100_000  # the largest argument of a call or filter: a width, a count, an indentation
_LOOKS: Final = 256  # turns of a loop between two looks at the clock
_BITS: Final = 4096  # of a product or a power
_JSON_INDENT: Final = 64
_WIDE: Final = re.compile(r"\d{5}|\*")  # in a format: a width, or one given by the arguments

_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class Exhausted(jinja2.TemplateRuntimeError):
    """The template took more time or space than it may."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Compile with it as with any environment, and render with `render`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters = {name: bounded(name, function) for name, function in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _Watched().visit(template)
        return template

    def turns(self, items: Iterable[Any]) -> "_Turns":
        """The iterable of a loop, with checks of the clock."""
        return _Turns(items)

    def joined(self, *parts: Any) -> str:
        """The result of `~`."""
        return "".join(_sized(map(str, parts)))

    def call(self, context: Context, function: Any, /, *arguments: Any, **named: Any) -> Any:
        subject = getattr(function, "__self__", None)
        _check(getattr(function, "__name__", ""), (subject, *arguments), named)
        return super().call(context, function, *arguments, **named)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _WIDE.search(value.__self__):
            raise Exhausted("the template formats with too large a width")
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _look()
        if operator == "*":
            _check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * abs(right) > _BITS:
                raise Exhausted("the template makes too large a number")
        elif operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise Exhausted("the template formats with too large a width")
        elif operator == "+" and isinstance(left, str | list) and isinstance(right, str | list):
            _check_size(len(left) + len(right))
        return super().call_binop(context, operator, left, right)


class _Watched(NodeTransformer):
    """Calls our functions where Jinja would compile to Python that cannot be interrupted."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _call("turns", [node.iter], node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)


def _call(name: str, arguments: Sequence[nodes.Node], line: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)
    return cast(nodes.Call, call.set_lineno(line, override=False))


class _Turns:
    """An iterable that checks the clock now and then, and has the length of what it iterates over."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        for index, item in enumerate(self._items):
            if not index % _LOOKS:
                _look()
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]  # Jinja makes a list of what has no length


def render(template: jinja2.Template, variables: dict[str, Any]) -> str:
    """The template's text. Raises `Exhausted` for more than `TIME_S` seconds or `CHARACTERS`, else Jinja's errors."""
    token = _deadline.set(time.monotonic() + TIME_S)
    try:
        return "".join(_sized(template.generate(variables)))
    finally:
        _deadline.reset(token)


def _sized(pieces: Iterable[str]) -> Iterator[str]:
    size = 0
    for piece in pieces:
        size += len(piece)
        _check_size(size)
        yield piece


def _look() -> None:
    if time.monotonic() > _deadline.get():
        raise Exhausted("the template takes too long")


def _check_size(characters: int) -> None:
    if characters > CHARACTERS:
        raise Exhausted("the template makes too much text")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _BITS:
            raise Exhausted("the template makes too large a number")
        return
    for items, count in ((left, right), (right, left)):
        if isinstance(items, str | list | tuple) and isinstance(count, int):
            _check_size(len(items) * count)


def _check(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Check the arguments of the method or filter `name`; the first argument is the object of the call."""
    _look()
    given = [*arguments[1:], *named.values()]
    if any(isinstance(value, int | float) and abs(value) > NUMBER for value in given):
        raise Exhausted("the template calls a function with too large a number")
    texts = [value for value in arguments if isinstance(value, str)]
    widths = [int(value) for value in given if isinstance(value, int | float)]
    if name in ("join", "do_join"):
        arguments = (*arguments, *named.values(), "")
        for separator, items in (arguments[:2], arguments[1::-1]):  # the method and the filter
            if isinstance(separator, str) and isinstance(items, list | tuple | dict | range):
                _check_size(sum(len(item) for item in items if isinstance(item, str)) + len(separator) * len(items))
    elif name in ("replace", "do_replace") and len(texts) > 2:
        text, old, new = texts[:3]
        _check_size(text.count(old) * len(new))
    elif name in ("indent", "do_indent", "expandtabs") and texts:
        width = max([*widths, *map(len, texts[1:])], default=8)
        _check_size((1 + texts[0].count("\n") + texts[0].count("\t")) * width)
    elif name == "tojson" and max(widths, default=0) > _JSON_INDENT:
        raise Exhausted("the template calls a function with too large a number")
    elif name == "format" and texts and _WIDE.search(texts[0]):
        raise Exhausted("the template formats with too large a width")


def bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter `function` with checks."""
    given = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja puts its own argument before the others

    @wraps(function)  # with Jinja's mark of what it is given
    def watched(*arguments: Any, **named: Any) -> Any:
        _check(name, arguments[given:], named)
        return function(*arguments, **named)

    return watched
