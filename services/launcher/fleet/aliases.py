"""The names under which `up` serves its targets: their own, and the user's aliases. Pure."""

from collections.abc import Sequence
from pathlib import Path

from shared.errors import StartError
from shared.fleet.model_names import DEFAULT, check_aliases
from shared.model.model_source import model_name

_TARGET = "--target-model"
_ALIAS = "--alias"


def name_targets(specs: Sequence[str], paths: Sequence[Path], aliases: Sequence[str]) -> list[tuple[str, ...]]:
    """The aliases of each target, given as `specs` and found at `paths`.

    An alias is `NAME`, or `NAME=MODEL` where there are several models; MODEL is what --target-model says, or the
    model's name. Of several models the first is also called "default", unless the user calls another one so. Raises
    `StartError`.
    """
    names = [model_name(path) for path in paths]
    for index, (name, path) in enumerate(zip(names, paths, strict=True)):
        first = paths[names.index(name)]
        if first.resolve() != path.resolve():
            raise StartError(_TARGET, specs[index], f"has the same name as {first}, so no client could tell them apart")
    models = list(dict.fromkeys(names))
    owners: dict[str, str] = {}
    for text in aliases:
        alias, named, wanted = text.partition("=")
        if not named and len(models) > 1:
            raise StartError(_ALIAS, text, f"write {alias}=MODEL, where MODEL is one of {', '.join(models)}")
        owner = _owner(wanted, specs, names) if named else names[0]
        if owner is None:
            raise StartError(_ALIAS, text, f"MODEL must be one of {', '.join(models)}")
        if alias in models and alias != owner:
            raise StartError(_ALIAS, text, f"{alias} is the name of another target")
        if owners.setdefault(alias, owner) != owner:
            raise StartError(_ALIAS, text, f"{alias} is an alias of {owners[alias]} already")
    if len(models) > 1 and DEFAULT not in models:
        owners.setdefault(DEFAULT, names[0])
    by_model = {model: check_aliases(alias for alias, owner in owners.items() if owner == model) for model in models}
    return [by_model[name] for name in names]


def _owner(wanted: str, specs: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for spec, name in zip(specs, names, strict=True) if wanted in (spec, name)), None)
