"""`draftmesh models`: shows the models on this machine, which of them can draft for which, and what fits where."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from services.launcher.facts import inventory
from services.launcher.facts.inventory import Found
from services.launcher.facts.model_facts import Facts, Library, shares_vocabulary
from shared.errors import StartError
from shared.folders import cache_folder
from shared.machine import devices
from shared.machine.devices import Device
from shared.model import hardware, memory
from shared.model.memory import Fit

_PARTIAL: Final = "incomplete; `draftmesh pull` continues the download"
_SHARDS_MISSING: Final = "some of its shards are missing"
_SMALLER: Final = 2  # a drafter's weights are at most the target's divided by this, so that its steps cost much less


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model on this machine with its facts."""

    found: Found
    facts: Facts | None
    problem: str  # why there are no facts, or why it cannot be used
    drafters: Sequence[str]  # names of models that could draft for it, the largest first
    fits: Mapping[str, Fit]  # by device


def run(folders: Sequence[Path], parallel: int, as_json: bool) -> int:
    """Print the list: 0. Raises `StartError` for a folder that does not exist."""
    found = inventory.find(folders)
    problem = ""
    present: Mapping[str, Device] = {}
    try:
        present = devices.named(hardware.look().devices)
    except StartError as error:
        problem = str(error)
    entries = examine(found, present, parallel, Library(cache_folder() / "models.json"))
    if as_json:
        json.dump(as_values(entries, present, parallel), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(entries, list(present), parallel, Console(highlight=False))
    if problem:
        Console(stderr=True, highlight=False).print(Text(f"what fits is not known: {problem}"), soft_wrap=True)
    return 0


def examine(
    found: Sequence[Found], present: Mapping[str, Device], parallel: int, library: Library
) -> list[ListedModel]:
    """`found` with facts, drafters and fits."""
    whole = [model for model in found if model.whole]
    facts: dict[str, Facts | str] = dict(
        zip((model.name for model in whole), library.read([model.files for model in whole]), strict=True)
    )
    known = {name: fact for name, fact in facts.items() if isinstance(fact, Facts) and not fact.unfit}
    entries = []
    for model in found:
        fact = facts.get(model.name, _PARTIAL if model.source == inventory.HUB else _SHARDS_MISSING)
        if isinstance(fact, Facts) and fact.unfit:
            fact = fact.unfit
        if isinstance(fact, str):
            entries.append(ListedModel(found=model, facts=None, problem=fact, drafters=(), fits={}))
            continue
        fits = {
            name: memory.fit(fact, device.memory_free, on_cpu=device.kind == devices.CPU, parallel=parallel)
            for name, device in present.items()
        }
        entries.append(ListedModel(found=model, facts=fact, problem="", drafters=_drafters(fact, known), fits=fits))
    return entries


def _drafters(target: Facts, known: Mapping[str, Facts]) -> list[str]:
    if target.recurrent:
        return []
    names = [
        name
        for name, facts in known.items()
        if facts.weights * _SMALLER <= target.weights and not facts.recurrent and shares_vocabulary(target, facts)
    ]
    return sorted(names, key=lambda name: (-known[name].weights, name))


def as_values(entries: Sequence[ListedModel], present: Mapping[str, Device], parallel: int) -> dict[str, object]:
    """The list as plain values; sizes in bytes. `facts` is null where a file is missing or cannot be read."""
    return {
        "parallel": parallel,
        "devices": {
            name: {
                "description": device.description,
                "memory_free": device.memory_free,
                "memory_total": device.memory_total,
            }
            for name, device in present.items()
        },
        "models": [
            {
                "name": entry.found.name,
                "source": entry.found.source,
                "path": str(entry.found.files[0]),
                "size": entry.found.size,
                "complete": entry.found.whole,
                "problem": entry.problem,
                "facts": _values(entry.facts) if entry.facts else None,
                "drafters": list(entry.drafters),
                "fits": {name: {"whole": fit.whole, **asdict(fit)} for name, fit in entry.fits.items()},
            }
            for entry in entries
        ],
    }


def _values(facts: Facts) -> dict[str, object]:
    return {
        "architecture": facts.architecture,
        "quant": facts.quant,
        "parameters": facts.parameters,
        "context": facts.context,
        "vocabulary": facts.fingerprints.get(facts.n_tokens, ""),
        "n_tokens": facts.n_tokens,
        "cache_bytes_per_token": memory.bytes_per_token(facts),
        "recurrent": facts.recurrent,
    }


def show(entries: Sequence[ListedModel], names: Sequence[str], parallel: int, console: Console) -> None:
    """The list for people: a block per model, because names are long and terminals are not."""
    if not entries:
        console.print("no models here; `draftmesh pull hf:user/repo:QUANT` fetches one")
    for entry in entries:
        console.print(Text(entry.found.name, style="bold"), soft_wrap=True)
        for line in _lines(entry, names, parallel):
            console.print(Text(f"  {line}"), soft_wrap=True)
    total = sum(entry.found.size for entry in entries)
    console.print(Text(f"{len(entries)} model{'' if len(entries) == 1 else 's'}, {decimal(total)}"), soft_wrap=True)


def _lines(entry: ListedModel, names: Sequence[str], parallel: int) -> list[str]:
    facts = entry.facts
    if facts is None:
        return [f"{decimal(entry.found.size)}: {entry.problem}"]
    about = (
        f"{decimal(entry.found.size)}, {facts.quant}, {facts.architecture}, {_count(facts.parameters)} parameters,"
        f" trained for {facts.context} tokens"
    )
    fits = ", ".join(f"{name} {entry.fits[name]}" for name in names)
    lines = [about, *([f"fits, for {parallel} requests at once: {fits}"] if fits else [])]
    if facts.recurrent:
        lines.append("recurrent: answers without drafts, and cannot draft")
    elif entry.drafters:
        lines.append(f"possible drafters: {', '.join(entry.drafters)}")
    return lines


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
