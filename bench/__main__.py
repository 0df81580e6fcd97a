"""`python -m bench`: measures draftmesh against a raw llama_decode loop, one core per side.

Prints tables and writes bench/results/latest.json, whose keys bench/report.py documents.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from bench import draws as draws_alone
from bench.measure import CONFIGURATIONS, Bench
from bench.pairs import PairName
from bench.raw import Raw
from bench.report import as_json, cause_table, goal_table, remarks, speed_table
from bench.running import build, console, head, of_pair, to_end
from bench.versus.results import ResultFile
from bench.workload import TOKENS, rendered, requests
from services.launcher.fleet.cores import one_each
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair
from services.launcher.models.progress import counted
from shared.model.llama.library import build_info
from shared.settings import command_line

RESULTS: Final = Path(__file__).parent / "results" / "latest.json"
CTX: Final = 1024


def main(
    repeat: Annotated[int, typer.Option(help="Repetitions; each runs every configuration once.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One repetition: a first look, no basis for claims.")] = False,
    pair: Annotated[PairName, typer.Option(help="The models; qwen is a real pair: 1.6 GB of PyPI packages.")] = (
        PairName.WIDENED
    ),
    tokens: Annotated[int, typer.Option(help="Tokens per answer.", min=8, max=512)] = TOKENS,
    draws: Annotated[bool, typer.Option("--draws", help="Only time draws from rows of logits; no model.")] = False,
) -> None:
    """Measure the raw loop, draftmesh plain and draftmesh with each drafter; print tables; write latest.json.

    With --draws it times draws instead, and writes draws.json.
    """
    if draws:
        draws_alone.run(console, 40 if quick else 400)
        return
    to_end(_measure(pair, build(pair), 1 if quick else repeat, tokens))


async def _measure(name: PairName, pair: Pair, repetitions: int, tokens: int) -> None:
    engine, side = one_each()
    if engine == side:
        console.print("one core only: target and drafter share it, so expect no speed-up")
    console.print("loading the target and measuring the cost of rows…")
    async with (
        Stack(pair.target, engine_cores=engine, side_cores=side, ctx=CTX, fresh=True) as stack,
        Raw(pair.target, ctx=CTX, core=engine[0]) as raw,
    ):
        with counted(console, repetitions * len(CONFIGURATIONS) * len(requests(0, tokens))) as tell:
            bench = Bench(stack, raw, pair, rendered(pair.draft_4bit), lambda name: tell(name, 1))
            for repetition in range(repetitions):
                await bench.repeat(repetition, tokens)
        row_ms = dict((await stack.settled_card()).row_ms)
    measured = bench.measured
    files = {path.name: path.stat().st_size for path in (pair.target, pair.draft_8bit, pair.draft_4bit)}
    settings = {"pair": name, "repetitions": repetitions, "tokens": tokens, "files": files}
    file = ResultFile(of_pair(RESULTS, name), head(settings, llama_cpp=build_info(), row_ms=row_ms))
    file.keep(as_json(measured))
    console.print(speed_table(measured), cause_table(measured), *remarks(measured), goal_table(measured), sep="\n")
    console.print(f"written to {file.path.relative_to(RESULTS.parents[2])}")


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench")
