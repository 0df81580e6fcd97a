"""`python -m bench`: measures draftmesh against a raw llama_decode loop on the widened pair, one core per side.

Prints tables and writes bench/results/latest.json, whose keys bench/report.py documents.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.measure import CONFIGURATIONS, Bench, Measured
from bench.raw import Raw
from bench.report import as_json, cause_table, goal_table, remarks, speed_table
from bench.workload import TOKENS, rendered, requests
from services.launcher.bench import machine
from services.launcher.clients.streaming import AnswerError
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack, StackError, run_to_end
from services.launcher.models.pair import Pair, build_pair
from services.launcher.models.progress import building
from shared.folders import cache_folder
from shared.model.llama.library import build_info
from shared.settings import command_line

RESULTS: Final = Path(__file__).parent / "results" / "latest.json"
CTX: Final = 1024

console = Console()


def main(
    repeat: Annotated[int, typer.Option(help="Repetitions; each runs every configuration once.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One repetition: a first look, no basis for claims.")] = False,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=8, max=512)] = TOKENS,
) -> None:
    """Measure the raw loop, draftmesh plain and draftmesh with each drafter; print tables; write latest.json."""
    try:
        with building(console) as progress:
            pair = build_pair(cache_folder(), progress)
        sys.exit(run_to_end(_measure(pair, 1 if quick else repeat, tokens)))
    except (StackError, AnswerError) as error:
        command_line.refuse(str(error))


async def _measure(pair: Pair, repetitions: int, tokens: int) -> int:
    engine, side = (half[:1] for half in halves())
    if engine == side:
        console.print("one core only: target and drafter share it, so expect no speed-up")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, side)  # the client belongs to the side of the gateway
    prompts = rendered(pair.draft_4bit)
    console.print("loading the target and measuring the cost of rows…")
    async with (
        Stack(pair.target, engine_cores=engine, side_cores=side, ctx=CTX, fresh=True) as stack,
        Raw(pair.target, ctx=CTX, core=engine[0]) as raw,
    ):
        with _progress(console) as progress:
            task = progress.add_task("", total=repetitions * len(CONFIGURATIONS) * len(requests(0, tokens)))
            bench = Bench(stack, raw, pair, prompts, _step(progress, task))
            for repetition in range(repetitions):
                await bench.repeat(repetition, tokens)
        card = await stack.verifier_card()
    measured = bench.measured
    _write(measured, pair, repetitions, tokens, row_ms=dict(card.row_ms) if card else {})
    console.print(speed_table(measured), cause_table(measured), *remarks(measured), goal_table(measured), sep="\n")
    console.print(f"written to {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0  # a target that was missed is a finding, not a failure of the measurement


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>7}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _step(progress: Progress, task: Any) -> Callable[[str], None]:
    return lambda name: progress.update(task, advance=1, description=name)


def _write(measured: Measured, pair: Pair, repetitions: int, tokens: int, row_ms: dict[int, float]) -> None:
    files = (pair.target, pair.draft_8bit, pair.draft_4bit)
    report = as_json(
        measured,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={**asdict(machine.look()), "llama_cpp": build_info(), "row_ms": row_ms},
        settings={
            "repetitions": repetitions,
            "tokens": tokens,
            "files": {path.name: path.stat().st_size for path in files},
        },
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench")
