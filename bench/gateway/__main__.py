"""`python -m bench.gateway`: 300 streams from a scripted target through one gateway; latency, cost and memory.

Prints a table per scenario and keeps bench/results/gateway.json, whose keys are those of bench/gateway/report.py.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.gateway.memory import grow
from bench.gateway.report import Scenario, as_json, growth_as_json, growth_line, run_table
from bench.gateway.streams import Crowd, Fleet
from bench.running import chosen, console, head, to_end
from bench.versus.results import ResultFile
from services.launcher.fleet.cores import Cores, halves
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "gateway.json"
_PAUSE_S: Final = 1.0  # between crowds: the clean-up of one must not be counted with the next

SCENARIOS: Final = (
    Scenario(name="apart", what="the gateway on one core, everything else on another"),
    Scenario(name="free", what="all processes on both cores", apart=False),
    Scenario(name="stalled", what="as `apart`, beside 30 clients that read nothing", crowd=Crowd(stalled=30)),
    Scenario(name="one", what="as `apart`, but all 300 commits in one pipeline", crowd=Crowd(verifiers=1), bound=False),
)
MEMORY: Final = Scenario(name="memory", what="resident memory over many short requests", crowd=Crowd(round_ms=20))


def main(
    scenario: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(one.name for one in (*SCENARIOS, MEMORY))}; all."),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Crowds per scenario.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="How long each crowd flows.", min=2)] = 15.0,
    requests: Annotated[int, typer.Option(help="Short requests that memory is watched over.", min=10)] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: does it run?")] = False,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Measure the gateway alone; write gateway.json."""
    scenarios = chosen("--scenario", scenario or [], (*SCENARIOS, MEMORY))
    if quick:
        repeat, seconds, requests = 1, 4.0, 500
    file = ResultFile(results, head({"crowds": repeat, "seconds": seconds, "requests": requests}))
    to_end(_run(scenarios, repeat, seconds, requests, file))


async def _run(scenarios: list[Scenario], repeat: int, seconds: float, requests: int, file: ResultFile) -> None:
    done = {}
    with console.status("") as status:
        for one in scenarios:
            if one is MEMORY:
                await _memory(requests, file, status.update)
                continue
            gateway, others = _cores(one.apart)
            async with Fleet(one.crowd, gateway_cores=gateway, other_cores=others) as fleet:
                runs = []
                for number in range(repeat):
                    status.update(f"{one.name}: crowd {number + 1} of {repeat}")
                    runs.append(await fleet.run(seconds))
                    await asyncio.sleep(_PAUSE_S)
            done[one.name] = as_json(one, runs)
            file.keep({"scenarios": done})
            console.print(run_table(one, runs))
    console.print(f"written to {file.path}")


async def _memory(requests: int, file: ResultFile, tell: Callable[[str], object]) -> None:
    gateway, others = _cores(apart=True)
    async with Fleet(MEMORY.crowd, gateway_cores=gateway, other_cores=others) as fleet:
        growth = await grow(fleet.stack.url, fleet.stack.gateway.pid, requests, tell)
    file.keep({"memory": growth_as_json(growth)})
    console.print(growth_line(growth))


def _cores(apart: bool) -> tuple[Cores, Cores]:
    gateway, others = (half[:1] for half in halves())
    both = sorted({*gateway, *others})
    return (gateway, others) if apart else (both, both)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.gateway")
