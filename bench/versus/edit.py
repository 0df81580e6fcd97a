"""The cell about code edits: lookup drafts only, where about seven in ten tokens of the answer are copied.

Lookups also copy from earlier answers, so each repetition edits a file that nobody saw before, and the warm-up another.

The small model is asked to rename a field of a file and print it. It explains a little and then mostly copies; the
share that it really copied is measured and told, since it decides what lookup can gain.
"""

import statistics
from collections.abc import Sequence
from typing import Final

from bench.versus.contest import OURS, Contestant, Ours, works
from bench.versus.peers import lookup_settings
from bench.versus.results import CellResult
from bench.versus.setup import Setup, meet
from bench.versus.speed import against

WANTED: Final = 1.5
TOKENS: Final = 192
COPY_RUN: Final = 6  # tokens in a row that also stand in the prompt: shorter runs are chance

_RECORDS: Final = {
    "invoice": ("number: int", "customer: str", "amount: float", "currency: str", "paid: bool", "due: str"),
    "sensor": ("name: str", "unit: str", "value: float", "minimum: float", "maximum: float", "broken: bool"),
    "parcel": ("sender: str", "receiver: str", "weight: float", "height: int", "width: int", "fragile: bool"),
}
_RENAMED: Final = {"invoice": ("amount", "total"), "sensor": ("value", "reading"), "parcel": ("weight", "mass")}


def source_file(name: str) -> str:
    """A small Python file with a dataclass and its reader and writer."""
    kind = name.capitalize()
    fields = [line.partition(":")[0] for line in _RECORDS[name]]
    return "\n".join(
        [
            "import json\nfrom dataclasses import dataclass\n\n@dataclass",
            f"class {kind}:",
            *(f"    {line}" for line in _RECORDS[name]),
            f"\ndef load_{name}(path: str) -> {kind}:",
            "    with open(path) as file:\n        data = json.load(file)",
            f"    return {kind}(",
            *(f'        {field}=data["{field}"],' for field in fields),
            f"    )\n\ndef save_{name}(value: {kind}, path: str) -> None:",
            "    data = {",
            *(f'        "{field}": value.{field},' for field in fields),
            '    }\n    with open(path, "w") as file:\n        json.dump(data, file)',
        ]
    )


def instruction(name: str) -> str:
    """The user's message."""
    old, new = _RENAMED[name]
    return f"Rename the field `{old}` to `{new}` in this file and print the whole file:\n\n{source_file(name)}"


def copied_share(prompt: Sequence[int], answer: Sequence[int], run: int = COPY_RUN) -> float:
    """The share of an answer's tokens that lie in a run of at least `run` tokens that also stands in the prompt."""
    seen = {tuple(prompt[start : start + run]) for start in range(len(prompt) - run + 1)}
    copied = [False] * len(answer)
    for start in range(len(answer) - run + 1):
        if tuple(answer[start : start + run]) in seen:
            copied[start : start + run] = [True] * run
    return sum(copied) / len(answer) if answer else 0.0


async def edit(setup: Setup, cell: str) -> CellResult:
    """Speed of a mostly copied answer: our lookup drafter against the native peer's lookups, or the newest one's."""
    texts = {name: instruction(name) for name in _RECORDS}
    [work] = works(setup.pair.draft_4bit, texts, setup.tokens if setup.quick else TOKENS, [0.0]).values()
    settings = [setting for engine in setup.binaries.engines[:1] for setting in lookup_settings(engine)[1:]]
    async with (
        setup.stack(setup.pair.target) as stack,
        setup.opponents(settings, setup.pair.target) as theirs,
    ):
        await stack.start_drafter(None)
        contestants: list[Contestant] = [Ours(stack), *theirs]
        runs = await meet(setup, contestants, work, each=1)
    prompts = {task.name: task.prompt for [task] in work}
    shares = [copied_share(prompts[run.key[0]], run.tokens[0]) for run in runs.all if run.name == OURS]
    return CellResult(
        findings=against(cell, "lookup", 0.0, runs, [setting.name for setting in settings], WANTED),
        notes=[f"copied from the prompt: {statistics.fmean(shares):.0%} of the answers' tokens"],
        runs=runs.all,
    )
