"""`python -m bench.paced`: what a GPU-class verifier would see with draftmesh around it. Emulation, and labelled so.

The target's decodes are stretched to a published cost curve; gateway, Redis, verifier loops and drafters are real and
take real time on this machine's cores. Prints a table per scenario; keeps bench/results/paced.json, whose keys are
those of bench/versus/results.py.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.files import float_copy
from bench.paced.emulation import SCENARIOS, Emulation
from bench.running import build, chosen, console, head, to_end
from bench.tasks import prompts
from bench.versus.results import ResultFile, measure
from services.launcher.fleet.cores import one_each
from services.launcher.models.pair import default_model
from services.launcher.models.progress import building, counted
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "paced.json"
_NOTE: Final = "decodes take as long as a curve says; everything around them is real"


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
    scenarios = chosen("--scenario", scenario or [], SCENARIOS)
    repetitions, tokens = (1, min(tokens, 24)) if quick else (repeat, tokens)
    pair = build()
    with building(console) as progress:
        target = float_copy(pair, default_model(), progress)
    engine, side = one_each()
    file = ResultFile(results, {"emulated": _NOTE, **head({"repetitions": repetitions, "tokens": tokens})})
    with counted(console, len(scenarios)) as tell:
        emulation = Emulation(
            pair=pair,
            target=target,
            engine_cores=engine,
            side_cores=side,
            repetitions=repetitions,
            texts=prompts(1 if quick else 2),
            tokens=tokens,
            step=tell,
        )
        parts = [(one.name, one.what, partial(emulation.run, one)) for one in scenarios]
        to_end(measure(parts, file, tell))


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced")
