"""The cell about code edits: lookup drafts only, where about seven in ten tokens of the answer are copied.

Lookups also copy from earlier answers, so each repetition edits a file that nobody saw before, and the warm-up another.

The small model is asked to rename a field of a file and print it. It explains a little and then mostly copies; the
share that it really copied is measured and told, since it decides what lookup can gain.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.versus.contest import OURS, Contestant, Ours, compete, warm_up, works
from bench.versus.peers import lookup_settings
from bench.versus.results import CellResult
from bench.versus.setup import Setup
from bench.versus.speed import against

WANTED: Final = 1.5
TOKENS: Final = 192
COPY_RUN: Final = 6  # tokens in a row that also stand in the prompt: shorter runs are chance


@dataclass(frozen=True, slots=True)
class EditedRecord:
    """A dataclass to put into a file, one of whose fields gets another name."""

    name: str
    fields: tuple[str, ...]  # with their types
    old: str
    new: str


_RECORDS: Final = (
    EditedRecord(
        "invoice",
        ("number: int", "customer: str", "amount: float", "currency: str", "paid: bool", "due: str"),
        "amount",
        "total",
    ),
    EditedRecord(
        "sensor",
        ("name: str", "unit: str", "value: float", "minimum: float", "maximum: float", "broken: bool"),
        "value",
        "reading",
    ),
    EditedRecord(
        "parcel",
        ("sender: str", "receiver: str", "weight: float", "height: int", "width: int", "fragile: bool"),
        "weight",
        "mass",
    ),
)
_NAMES: Final = ("ticket", "vessel", "garden", "lesson", "recipe", "player", "ledger", "engine", "bottle", "letter")
_FIELDS: Final = (
    *("title: str", "owner: str", "price: float", "length: int", "active: bool", "created: str", "level: int"),
    *("colour: str", "volume: float", "public: bool", "origin: str", "rating: float", "count: int", "label: str"),
)
_NEW: Final = ("caption", "measure", "degree", "marker", "remark", "figure")


def record(number: int) -> EditedRecord:
    """A record of its own for every number, the same on every run."""
    if number < len(_RECORDS):
        return _RECORDS[number]
    random = Random(number)
    fields = tuple(random.sample(_FIELDS, 6))
    old = random.choice(fields).partition(":")[0]
    return EditedRecord(f"{random.choice(_NAMES)}{number}", fields, old, random.choice(_NEW))


def source_file(asked: EditedRecord) -> str:
    """A small Python file with a dataclass and its reader and writer."""
    name, kind = asked.name, asked.name.capitalize()
    fields = [line.partition(":")[0] for line in asked.fields]
    return "\n".join(
        [
            "import json\nfrom dataclasses import dataclass\n\n@dataclass",
            f"class {kind}:",
            *(f"    {line}" for line in asked.fields),
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


def instruction(asked: EditedRecord) -> str:
    """The user's message."""
    question = f"Rename the field `{asked.old}` to `{asked.new}` in this file and print the whole file:"
    return f"{question}\n\n{source_file(asked)}"


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
    records = [record(number) for number in range(setup.repetitions + 1)]
    texts = {asked.name: instruction(asked) for asked in records}
    [work] = works(setup.pair.draft_4bit, texts, setup.tokens if setup.quick else TOKENS, [0.0]).values()
    *unseen, warming_up = work
    settings = [setting for engine in setup.binaries.engines[:1] for setting in lookup_settings(engine)[1:]]
    async with (
        setup.stack(setup.pair.target) as stack,
        setup.opponents(settings, setup.pair.target) as theirs,
    ):
        await stack.start_drafter(None)
        contestants: list[Contestant] = [Ours(stack), *theirs]
        await warm_up(contestants, warming_up)
        runs = await compete(contestants, unseen, setup.repetitions, setup.step, each=1)
    prompts = {task.name: task.prompt for [task] in work}
    shares = [copied_share(prompts[run.key[0]], run.tokens[0]) for run in runs.all if run.name == OURS]
    return CellResult(
        findings=against(cell, "lookup", 0.0, runs, [setting.name for setting in settings], WANTED),
        notes=[f"copied from the prompt: {statistics.fmean(shares):.0%} of the answers' tokens"],
        runs=runs.all,
    )
