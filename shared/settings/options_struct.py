"""Options structs: frozen dataclasses whose fields are the options of a command, each with its default.

A field's name is the option's key in `draftmesh.toml`, and its annotation the declaration. A field whose type is
another struct stands for that struct's options, so several commands can share a group.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

T = TypeVar("T")


def declarations(struct: Any) -> dict[str, Any]:
    """The options of a struct, by key and in order: what typer reads of each."""
    found: dict[str, Any] = {}
    for field in fields(struct):
        found |= declarations(field.type) if _is_struct(field.type) else {field.name: field.type}
    return found


def values(options: Any) -> dict[str, Any]:
    """The values of the options, by key and in order."""
    found: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        found |= values(value) if is_dataclass(value) else {field.name: value}
    return found


def build(struct: type[T], given: Mapping[str, Any]) -> T:
    """The struct with the values that are `given` by key."""
    return struct(**{field.name: _one(field.name, field.type, given) for field in fields(struct)})  # type: ignore[arg-type]


def _one(name: str, kind: Any, given: Mapping[str, Any]) -> Any:
    return build(kind, given) if _is_struct(kind) else given[name]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def arguments(options: Any) -> tuple[str, ...]:
    """The command line that gives these values; it leaves out options that have their defaults."""
    defaults = values(type(options)())
    return tuple(word for key, value in values(options).items() if value != defaults[key] for word in words(key, value))


def words(key: str, value: Any) -> Iterator[str]:
    """The part of a command line that sets one option to `value`; a flag is off where nothing is said."""
    name = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        yield from [name] if value else []
    else:
        for one in value if isinstance(value, list) else [value]:
            yield from (name, str(one))


def flat(main: Callable[..., T]) -> Callable[..., T]:
    """`main` for typer: in place of each parameter that is a struct it takes the struct's options."""
    taken = signature(main)
    shown: list[Parameter] = []
    for parameter in taken.parameters.values():
        if _is_struct(parameter.annotation):
            defaults = values(parameter.annotation())
            shown += [
                Parameter(key, Parameter.KEYWORD_ONLY, default=defaults[key], annotation=declared)
                for key, declared in declarations(parameter.annotation).items()
            ]
        else:
            shown.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(main)
    def call(**given: Any) -> T:
        return main(**{name: _one(name, one.annotation, given) for name, one in taken.parameters.items()})

    call.__signature__ = taken.replace(parameters=shown)  # type: ignore[attr-defined]
    return call
