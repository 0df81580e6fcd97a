"""`python -m bench.versus`: draftmesh and its peers on the same files, one core for the target and one for the rest.

Prints a table per cell and keeps bench/results/versus.json up to date after each; bench/versus/results.py documents
its keys, bench/README.md how to set up the peers.
"""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.pairs import PairName
from bench.running import build, chosen, console, head, of_pair, to_end
from bench.versus.cells import CELLS, ContestCell
from bench.versus.peers import Binaries
from bench.versus.results import ResultFile, measure
from bench.versus.setup import CACHE, Setup
from services.launcher.fleet.cores import one_each
from services.launcher.models.pair import default_model
from services.launcher.models.progress import counted
from shared.errors import StartError
from shared.model.llama.library import build_info
from shared.settings import command_line

_NAMES: Final = "; of ".join(f"{pair}: {', '.join(cell.name for cell in cells)}" for pair, cells in CELLS.items())
RESULTS: Final = Path(__file__).parents[1] / "results" / "versus.json"


def main(
    llama_server: Annotated[
        Path | None, typer.Option(envvar="DRAFTMESH_LLAMA_SERVER", help="The native peer; without it, it is left out.")
    ] = None,
    xllamacpp_python: Annotated[
        Path | None,
        typer.Option(envvar="DRAFTMESH_XLLAMACPP_PYTHON", help="The Python that has xllamacpp, for the newest peer."),
    ] = None,
    pair: Annotated[PairName, typer.Option(help="The models; qwen is a real pair: 1.6 GB of PyPI packages.")] = (
        PairName.WIDENED
    ),
    cell: Annotated[list[str] | None, typer.Option(help=f"Of {_NAMES}; without it, all of the pair.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of every work.", min=1)] = 3,
    prompts: Annotated[int, typer.Option(help="Prompts per repetition.", min=1, max=4)] = 2,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=8, max=512)] = 56,
    quick: Annotated[bool, typer.Option("--quick", help="One prompt, one repetition, 24 tokens: does it run?")] = False,
    results: Annotated[Path | None, typer.Option(help="Where to keep the results.")] = None,
) -> None:
    """Measure draftmesh beside its peers; print tables; write versus.json after every cell."""
    cells = chosen("--cell", cell or [], CELLS[pair])
    binaries = Binaries(llama_server=llama_server, xllamacpp_python=xllamacpp_python)
    binaries.check()
    if not binaries.engines and any(one.peers for one in cells):
        raise StartError("--llama-server", "''", "name at least one peer; bench/README.md says how to set them up")
    if quick:
        repeat, prompts, tokens = 1, 1, min(tokens, 24)
    models = build(pair)
    engine, side = one_each()
    peers = [str(engine) for engine in binaries.engines]
    settings = {"pair": pair, "repetitions": repeat, "prompts": prompts, "tokens": tokens, "peers": peers}
    results = results or of_pair(RESULTS, pair)
    file = ResultFile(results, head(settings, llama_cpp=build_info()))
    logs = results.parent / "versus-logs"
    logs.mkdir(parents=True, exist_ok=True)
    for log in logs.glob("*.log"):
        log.unlink()  # of an earlier run: logs are appended to
    shutil.rmtree(logs / CACHE, ignore_errors=True)  # costs are measured anew
    console.print(_estimate(cells, repeat, quick))
    with counted(console, len(cells)) as tell:
        setup = Setup(
            pair=models,
            default_model=default_model(),
            binaries=binaries,
            engine_cores=engine,
            side_cores=side,
            repetitions=repeat,
            prompts=prompts,
            tokens=tokens,
            quick=quick,
            logs=logs,
            step=tell,
        )
        parts = [(one.name, f"{one.name}: {one.what}", partial(one.run, setup, one.name)) for one in cells]
        to_end(measure(parts, file, tell), f"(what is done is kept in {results}; logs of peers: {logs})")


def _estimate(cells: Sequence[ContestCell], repetitions: int, quick: bool) -> str:
    minutes = sum(cell.fixed + cell.each * repetitions for cell in cells) / (3 if quick else 1)
    return f"about {minutes:.0f} minutes for {', '.join(cell.name for cell in cells)}; keep the machine quiet"


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.versus")
