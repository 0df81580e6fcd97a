"""The page of Redis keys, from the functions that name them."""

import inspect
from inspect import cleandoc, getdoc

from reference.markdown import code, page, table
from shared.wire import keys


def text() -> str:
    """The page."""
    found = [
        function for _, function in inspect.getmembers(keys, inspect.isfunction) if function.__module__ == keys.__name__
    ]
    found.sort(key=lambda function: function.__code__.co_firstlineno)
    rows = []
    for function in found:
        names = list(inspect.signature(function).parameters)
        kind, _, meaning = cleandoc(getdoc(function) or "").partition(": ")
        rows.append((code(function(*(f"<{name}>" for name in names))), kind.lower(), meaning))
    return page(
        "Redis keys",
        f"Everything that draftmesh keeps lies under `{keys.PREFIX}:` and expires by itself."
        " [The wire](../wire.md) says when, and how values are written. Verifiers read the job streams as the consumer"
        f" group {code(keys.GROUP)}.",
        table(("key", "type", "holds"), rows),
    )
