"""`python -m bench.versus`: draftmesh and its peers on the same files, one core for the target and one for the rest.

Prints a table per cell and keeps bench/results/versus.json up to date after each; bench/versus/results.py documents
its keys, bench/README.md how to set up the peers.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.files import slow_draft
from bench.versus.cells import CELLS, ContestCell, cells_named
from bench.versus.peers import Binaries, PeerError
from bench.versus.results import ResultFile, finding_table
from bench.versus.setup import Setup
from services.launcher.bench import machine
from services.launcher.clients.streaming import AnswerError
from services.launcher.fleet.cores import one_each
from services.launcher.fleet.stack import StackError, run_to_end
from services.launcher.models.pair import build_pair, default_model
from services.launcher.models.progress import building
from shared.errors import StartError
from shared.folders import cache_folder
from shared.model.llama.library import build_info
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "versus.json"

_COLUMNS: Final = (
    TextColumn("{task.description:<32}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("cells"),
    TimeElapsedColumn(),
)

console = Console(width=None if sys.stdout.isatty() else 120)


def main(
    llama_server: Annotated[
        Path | None, typer.Option(envvar="DRAFTMESH_LLAMA_SERVER", help="The native peer; without it, it is left out.")
    ] = None,
    xllamacpp_python: Annotated[
        Path | None,
        typer.Option(envvar="DRAFTMESH_XLLAMACPP_PYTHON", help="The Python that has xllamacpp, for the newest peer."),
    ] = None,
    cell: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(c.name for c in CELLS)}; all.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of every work.", min=1)] = 3,
    prompts: Annotated[int, typer.Option(help="Prompts per repetition.", min=1, max=4)] = 2,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=8, max=512)] = 56,
    quick: Annotated[bool, typer.Option("--quick", help="One prompt, one repetition, 24 tokens: does it run?")] = False,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Measure draftmesh beside its peers; print tables; write versus.json after every cell."""
    try:
        chosen = cells_named(cell or [])
    except ValueError as error:
        command_line.refuse(str(error))
    binaries = Binaries(llama_server=llama_server, xllamacpp_python=xllamacpp_python)
    binaries.check()
    if not binaries.engines and any(one.peers for one in chosen):
        raise StartError("--llama-server", "''", "name at least one peer; bench/README.md says how to set them up")
    if quick:
        repeat, prompts, tokens = 1, 1, min(tokens, 24)
    with building(console) as progress:
        pair = build_pair(cache_folder(), progress)
        slow = slow_draft(pair, default_model(), progress)
    engine, side = one_each()
    file = ResultFile(results, _head(binaries, repeat, prompts, tokens))
    logs = results.parent / "versus-logs"
    logs.mkdir(parents=True, exist_ok=True)
    for log in logs.glob("*.log"):
        log.unlink()  # of an earlier run: logs are appended to
    console.print(_estimate(chosen, repeat, quick))
    with Progress(*_COLUMNS, console=console) as bar:
        steps = bar.add_task("", total=len(chosen))
        setup = Setup(
            pair=pair,
            slow_draft=slow,
            default_model=default_model(),
            binaries=binaries,
            engine_cores=engine,
            side_cores=side,
            repetitions=repeat,
            prompts=prompts,
            tokens=tokens,
            quick=quick,
            logs=logs,
            step=lambda name: bar.update(steps, description=name),
        )
        try:
            sys.exit(run_to_end(_run(setup, chosen, file, lambda: bar.advance(steps))))
        except (StackError, AnswerError, PeerError) as error:
            command_line.refuse(f"{error} (what is done is kept in {results}; logs of peers: {logs})")


async def _run(setup: Setup, cells: list[ContestCell], file: ResultFile, done: Callable[[], object]) -> int:
    for cell in cells:
        setup.step(f"{cell.name}: loading")
        result = await cell.run(setup, cell.name)
        file.add(cell.name, result)
        done()
        console.print(finding_table(f"{cell.name}: {cell.what}", result.findings), *result.notes, sep="\n")
    console.print(f"written to {file.path}")
    return 0  # a ratio that was missed is a finding, not a failure of the measurement


def _estimate(cells: list[ContestCell], repetitions: int, quick: bool) -> str:
    minutes = sum(cell.minutes(repetitions) for cell in cells) / (3 if quick else 1)
    return f"about {minutes:.0f} minutes for {', '.join(cell.name for cell in cells)}; keep the machine quiet"


def _head(binaries: Binaries, repetitions: int, prompts: int, tokens: int) -> dict[str, object]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**asdict(machine.look()), "llama_cpp": build_info()},
        "settings": {
            "repetitions": repetitions,
            "prompts": prompts,
            "tokens": tokens,
            "peers": [str(engine) for engine in binaries.engines],
        },
    }


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.versus")
