"""`python -m tests.chaos`: real processes, faults every few seconds, and nothing may be lost, doubled or stuck."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.launcher.fleet.stack import run_to_end
from shared.model import model_source
from shared.settings import command_line
from tests.chaos.report import fault_table, summary
from tests.chaos.run import Plan, run
from tests.requantised import requantised

console = Console(width=None if sys.stdout.isatty() else 140)


def main(
    seconds: Annotated[float, typer.Option(help="How long faults strike.", min=1)] = 600.0,
    seed: Annotated[int, typer.Option(help="Of questions, choices and faults.")] = 1,
    clients: Annotated[int, typer.Option(help="How many ask at once.", min=1)] = 20,
) -> None:
    """Run chaos; exit with 1 if a promise was broken. The logs are kept then."""
    sys.exit(run_to_end(_run(seconds, seed, clients)))


async def _run(seconds: float, seed: int, clients: int) -> int:
    target = model_source.resolve("default")
    plan = Plan(target=target, draft=requantised(target, "Q8_0"), seconds=seconds, seed=seed, clients=clients)
    folder = Path(tempfile.mkdtemp(prefix="draftmesh-chaos-"))
    broken = True
    try:
        seen = await run(plan, folder, lambda line: console.print(line, highlight=False))
        broken = bool(seen.violations)
    finally:
        if broken:
            console.print(f"logs: {folder}")
        else:
            shutil.rmtree(folder)
    console.print(fault_table(seen))
    console.print(summary(seen), highlight=False)
    for line in seen.violations:
        console.print(f"BROKEN {line}", markup=False, highlight=False)
    return 1 if seen.violations else 0


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m tests.chaos")
