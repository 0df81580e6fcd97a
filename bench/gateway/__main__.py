"""`python -m bench.gateway`: 300 streams from a scripted target through one gateway; latency, cost and memory.

Prints a table per scenario and keeps bench/results/gateway.json, whose keys are those of bench/gateway/report.py.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.gateway.memory import grow
from bench.gateway.report import Report, Scenario, growth_line, run_table
from bench.gateway.streams import Crowd, Fleet
from services.launcher.fleet.cores import Cores, halves
from services.launcher.fleet.stack import StackError, run_to_end
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "gateway.json"
MEMORY: Final = "memory"
_PAUSE_S: Final = 1.0  # between crowds: the clean-up of one must not be counted with the next

SCENARIOS: Final = (
    Scenario(name="apart", what="the gateway on one core, everything else on another"),
    Scenario(name="free", what="all processes on both cores", apart=False),
    Scenario(name="stalled", what="as `apart`, beside 30 clients that read nothing", crowd=Crowd(stalled=30)),
    Scenario(name="one", what="as `apart`, but all 300 commits in one pipeline", crowd=Crowd(verifiers=1), bound=False),
)

console = Console(width=None if sys.stdout.isatty() else 120)


def main(
    scenario: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(one.name for one in SCENARIOS)}, {MEMORY}; all."),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Crowds per scenario.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="How long each crowd flows.", min=2)] = 15.0,
    requests: Annotated[int, typer.Option(help="Short requests that memory is watched over.", min=10)] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: does it run?")] = False,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Measure the gateway alone; write gateway.json."""
    known = (*(one.name for one in SCENARIOS), MEMORY)
    for name in scenario or []:
        if name not in known:
            command_line.refuse(f"--scenario {name}: must be one of {', '.join(known)}")
    if quick:
        repeat, seconds, requests = 1, 4.0, 500
    report = Report(results, {"crowds": repeat, "seconds": seconds, "requests": requests})
    chosen = [one for one in SCENARIOS if not scenario or one.name in scenario]
    try:
        sys.exit(run_to_end(_run(chosen, repeat, seconds, requests if _wants_memory(scenario) else 0, report)))
    except StackError as error:
        command_line.refuse(str(error))


def _wants_memory(scenario: list[str] | None) -> bool:
    return not scenario or MEMORY in scenario


async def _run(chosen: list[Scenario], repeat: int, seconds: float, requests: int, report: Report) -> int:
    with console.status("") as status:
        for one in chosen:
            gateway, others = _cores(one.apart)
            async with Fleet(one.crowd, gateway_cores=gateway, other_cores=others) as fleet:
                runs = []
                for number in range(repeat):
                    status.update(f"{one.name}: crowd {number + 1} of {repeat}")
                    runs.append(await fleet.run(seconds))
                    await asyncio.sleep(_PAUSE_S)
            report.add(one, runs)
            console.print(run_table(one, runs))
        if requests:
            await _memory(requests, report, status.update)
    console.print(f"written to {report.path}")
    return 0


async def _memory(requests: int, report: Report, tell: Callable[[str], object]) -> None:
    gateway, others = _cores(apart=True)
    async with Fleet(Crowd(round_ms=20), gateway_cores=gateway, other_cores=others) as fleet:
        growth = await grow(fleet.stack.url, fleet.stack.gateway.pid, requests, tell)
    report.add_growth(growth)
    console.print(growth_line(growth))


def _cores(apart: bool) -> tuple[Cores, Cores]:
    gateway, others = (half[:1] for half in halves())
    both = sorted({*gateway, *others})
    return (gateway, others) if apart else (both, both)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.gateway")
