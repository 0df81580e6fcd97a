"""The models that `setup` may choose among: those that the user named, else those on this machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from services.launcher.facts import inventory
from services.launcher.facts.inventory import Found
from services.launcher.facts.model_facts import Facts, Library, shares_vocabulary
from services.launcher.forecast.split import ModelCandidate
from services.launcher.models import fetching, model_list
from services.launcher.models.model_list import ListedModel
from shared.errors import StartError
from shared.folders import cache_folder
from shared.machine.devices import Device
from shared.model import memory, model_files, model_source

_IDEAL: Final = 10  # a target is best this many times as heavy as its drafter: a balance of step cost and acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The target, its smaller quantisations here, and models that could draft for it, the likeliest first."""

    target: ModelCandidate
    smaller: Sequence[ModelCandidate]
    drafts: Sequence[ModelCandidate]
    served: str  # the name by which clients ask for the target
    fingerprint: str  # of its vocabulary
    n_tokens: int


class LocalModels:
    """Every model on this machine with its facts; except those that draftmesh made for its demo."""

    def __init__(self, present: Mapping[str, Device], parallel: int, folders: Sequence[Path], console: Console) -> None:
        self._present = present
        self._parallel = parallel
        self._console = console
        self._found = [found for found in inventory.find(folders) if found.source != inventory.CACHE]

    def best(self) -> str:
        """The largest model that a device holds whole, or the default one."""
        entries = [entry for entry in self._examine() if any(fit.whole for fit in entry.fits.values())]
        largest = max(entries, key=lambda entry: entry.found.size, default=None)
        return largest.found.name if largest else model_source.DEFAULT

    def candidates(self, target: str, drafts: Sequence[str]) -> Candidates:
        """The candidates for `target`; `drafts`, if given, replace all models that could draft.

        Raises `StartError` for a model that cannot be read, or that cannot draft for the target.
        """
        for option, spec in (("--target-model", target), *(("--draft-model", draft) for draft in drafts)):
            self._add(spec, option)
        entries = {entry.found.name: entry for entry in self._examine()}
        facts = {name: entry.facts for name, entry in entries.items() if entry.facts}
        if target not in facts:
            raise StartError("--target-model", target, entries[target].problem)
        wanted = facts[target]
        for draft in drafts:
            if draft not in facts:
                raise StartError("--draft-model", draft, entries[draft].problem)
            if not shares_vocabulary(wanted, facts[draft]):
                raise StartError("--draft-model", draft, f"has another vocabulary than {target}, so it cannot draft")
        smaller = [name for name, other in facts.items() if _is_smaller(other, wanted)]
        chosen = drafts or sorted(entries[target].drafters, key=lambda name: _distance(facts[name], wanted))
        return Candidates(
            target=self._candidate(target, wanted),
            smaller=[
                self._candidate(name, facts[name]) for name in sorted(smaller, key=lambda name: -facts[name].weights)
            ],
            drafts=[self._candidate(name, facts[name]) for name in chosen],
            served=model_source.model_name(entries[target].found.files[0]),
            fingerprint=wanted.fingerprints.get(wanted.n_tokens, ""),
            n_tokens=wanted.n_tokens,
        )

    def _add(self, spec: str, option: str) -> None:
        """Add a model that was named and that no folder holds."""
        if any(found.name == spec and found.whole for found in self._found):
            return
        first = fetching.find(spec, option, self._console)
        files = model_files.shards(first)
        size = sum(file.stat().st_size for file in files)
        self._found.append(Found(name=spec, source="given", files=files, size=size, whole=True))

    def _examine(self) -> list[ListedModel]:
        return model_list.examine(self._found, self._present, self._parallel, Library(cache_folder() / "models.json"))

    def _candidate(self, name: str, facts: Facts) -> ModelCandidate:
        return ModelCandidate(
            name,
            facts.weights,
            lambda free, on_cpu: memory.fit(facts, free, on_cpu=on_cpu, parallel=self._parallel),
            facts.recurrent,
        )


def _is_smaller(other: Facts, target: Facts) -> bool:
    """Whether it is the same model in fewer bits."""
    return (
        (other.architecture, other.parameters) == (target.architecture, target.parameters)
        and other.weights < target.weights
        and shares_vocabulary(other, target)
    )


def _distance(draft: Facts, target: Facts) -> float:
    return abs(math.log(max(1, draft.weights) * _IDEAL / max(1, target.weights)))
