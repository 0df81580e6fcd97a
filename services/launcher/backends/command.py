"""The commands under `draftmesh backend`."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from services.launcher.backends import adding, catalogue, signs
from shared.model.llama import library, manifest, plugins, trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One line of the list."""

    name: str
    state: Literal["built in", "added", "unusable", "can be added"]
    version: str = ""
    devices: tuple[str, ...] = ()  # as --target-device takes them, with what they are
    note: str = ""


def show(as_json: bool) -> int:
    """Print the backends that are here and those that can be added: 0."""
    backends = listed()
    if as_json:
        sys.stdout.write(f"{json.dumps([asdict(backend) for backend in backends])}\n")
        return 0
    table = Table("backend", "state", "devices", "", box=None, padding=(0, 2, 0, 0))
    for backend in backends:
        state = f"{backend.state} {backend.version}".strip()
        table.add_row(backend.name, state, "\n".join(backend.devices), backend.note)
    Console(highlight=False).print(table)
    return 0


def listed() -> list[Backend]:
    """Every backend: those in llama.cpp itself, those that were added, and those that can be added."""
    built_in = [Backend(name=name, state="built in") for name in library.backends()]
    mine = added()
    here = {backend.name for backend in (*built_in, *mine)}
    offered = catalogue.offered(catalogue.this_system())
    return [
        *built_in,
        *mine,
        *(
            Backend(
                name=name,
                state="can be added",
                version=prebuilt.version,
                note=f"{prebuilt.title}; {decimal(prebuilt.size)}; needs {prebuilt.needs}",
            )
            for name, prebuilt in offered.items()
            if name not in here
        ),
    ]


def added() -> list[Backend]:
    """The added backends, each tried again."""
    return [_added(name, path) for name, path in plugins.installed().items()]


def _added(name: str, path: Path) -> Backend:
    known = manifest.read(path.parent)
    version = known.version if known else ""
    outcome = trial.attempt(path)
    if outcome.problem:
        return Backend(name=name, state="unusable", version=version, note=outcome.problem)
    return Backend(
        name=name,
        state="added",
        version=version,
        devices=tuple(f"{own}: {seen.description}" for own, seen in adding.named(name, outcome).items()),
        note="" if outcome.devices else f"no device: {signs.why_none(name, signs.look())}",
    )
