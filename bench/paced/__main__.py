"""`python -m bench.paced`: what a GPU-class verifier would see with draftmesh around it. Emulation, and labelled so.

The target's decodes take as long as a published cost curve says; its logits are real rows of 151,936 tokens. Gateway,
Redis, verifier loops and drafters are real and take real time: the verifier has one core, all else shares another.
Prints a table per scenario; keeps bench/results/paced.json, whose keys are those of bench/versus/results.py, and in
each cell `spent`, keys in bench/paced/found.py.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.paced import bigram
from bench.paced.emulation import CONTESTANTS, SCENARIOS, TEMPERATURES, Emulation
from bench.running import chosen, console, head, to_end
from bench.versus.results import ResultFile, measure
from services.launcher.fleet.cores import one_each
from services.launcher.models.progress import counted
from shared.folders import cache_folder
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "paced.json"
_NOTE: Final = "decodes take as long as a curve says; everything around them is real"
_QUICK_TOKENS: Final = 32
_QUICK_CONTEXT: Final = 512


def main(
    scenario: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(one.name for one in SCENARIOS)}; all.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions, each with seeds of its own.", min=1)] = 3,
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=16, max=512)] = 128,
    context: Annotated[int, typer.Option(help="Tokens of the prompt.", min=16, max=4096)] = 4096,
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything, in a minute: does it run?")] = False,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Emulate GPU-class targets; print decode shares and where the rest goes; write paced.json. About ten minutes."""
    scenarios = chosen("--scenario", scenario or [], SCENARIOS)
    if quick:
        repeat, tokens, context = 1, min(tokens, _QUICK_TOKENS), min(context, _QUICK_CONTEXT)
    console.print("writing a draft model of 151,936 tokens, once")
    model = bigram.draft_model(cache_folder() / "bench-paced" / "bigram.gguf")
    engine, side = one_each()
    settings = {"repetitions": repeat, "tokens": tokens, "context": context, "vocabulary": bigram.TOKENS}
    file = ResultFile(results, {"emulated": _NOTE, **head(settings)})
    each = len(CONTESTANTS) * len(TEMPERATURES) * (1 + repeat) + 1
    with counted(console, len(scenarios) * each) as tell:
        emulation = Emulation(
            model=model,
            engine_cores=engine,
            side_cores=side,
            repetitions=repeat,
            context=context,
            tokens=tokens,
            step=tell,
        )
        parts = [
            (one.name, f"{one.name}: emulated, {one.what}, {one.curve} ms", partial(emulation.run, one))
            for one in scenarios
        ]
        to_end(measure(parts, file, tell))


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced")
