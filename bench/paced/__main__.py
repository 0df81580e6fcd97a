"""`python -m bench.paced`: what a GPU-class verifier would see with draftmesh around it. Emulation, and labelled so.

The target's decodes are stretched to a published cost curve; gateway, Redis, verifier loops and drafters are real and
take real time on this machine's cores. Prints a table per scenario; keeps bench/results/paced.json, whose keys are
those of bench/versus/results.py.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.files import float_copy
from bench.paced.emulation import SCENARIOS, Emulation, Scenario
from bench.tasks import prompts
from bench.versus.results import ResultFile, finding_table
from services.launcher.bench import machine
from services.launcher.clients.streaming import AnswerError
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import StackError, run_to_end
from services.launcher.models.pair import build_pair, default_model
from services.launcher.models.progress import building
from shared.folders import cache_folder
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "paced.json"

console = Console(width=None if sys.stdout.isatty() else 120)


def main(
    scenario: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(one.name for one in SCENARIOS)}; all.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of every prompt.", min=1)] = 3,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=8, max=512)] = 96,
    quick: Annotated[bool, typer.Option("--quick", help="One prompt, one repetition, 24 tokens: does it run?")] = False,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Emulate GPU-class targets; print decode shares and fractions of the ideal; write paced.json."""
    known = {one.name: one for one in SCENARIOS}
    for name in scenario or []:
        if name not in known:
            command_line.refuse(f"--scenario {name}: must be one of {', '.join(known)}")
    chosen = [one for one in SCENARIOS if not scenario or one.name in scenario]
    with building(console) as progress:
        pair = build_pair(cache_folder(), progress)
        target = float_copy(pair, default_model(), progress)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, halves()[1][:1])  # the client belongs to the side of the gateway
    file = ResultFile(
        results,
        {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "emulated": "decodes take as long as a curve says; everything around them is real",
            "machine": asdict(machine.look()),
            "settings": {"repetitions": 1 if quick else repeat, "tokens": tokens},
        },
    )
    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        steps = bar.add_task("", total=len(chosen))
        emulation = Emulation(
            pair=pair,
            target=target,
            repetitions=1 if quick else repeat,
            texts=prompts(1 if quick else 2),
            tokens=min(tokens, 24) if quick else tokens,
            step=lambda name: bar.update(steps, description=name),
        )
        try:
            sys.exit(run_to_end(_run(emulation, chosen, file, lambda: bar.advance(steps))))
        except (StackError, AnswerError) as error:
            command_line.refuse(str(error))


async def _run(emulation: Emulation, chosen: list[Scenario], file: ResultFile, done: Callable[[], object]) -> int:
    for scenario in chosen:
        emulation.step(f"{scenario.name}: loading")
        result = await (emulation.trees(scenario) if scenario.tree else emulation.shares(scenario))
        file.add(scenario.name, result)
        done()
        console.print(finding_table(scenario.what, result.findings), *result.notes, sep="\n")
    console.print(f"written to {file.path}")
    return 0


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced")
