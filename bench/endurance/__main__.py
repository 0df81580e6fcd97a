"""`python -m bench.endurance`: an hour of mixed requests to a private fleet; what each process holds, and what grew.

The target is the small default model, so that many requests fit into the time. Keeps bench/results/memory.json.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from bench.endurance.counts import SERVICES, Counts
from bench.endurance.crowd import Crowd
from bench.endurance.report import as_json, grown, table
from bench.processes import Held, held
from bench.running import build, console, head, to_end
from bench.versus.results import ResultFile
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import default_model
from shared.settings import command_line

RESULTS: Final = Path(__file__).parents[1] / "results" / "memory.json"
SAMPLES: Final = 60


def main(
    minutes: Annotated[float, typer.Option(help="How long requests come.", min=0.5)] = 60.0,
    clients: Annotated[int, typer.Option(help="Clients at once.", min=1, max=64)] = 6,
    results: Annotated[Path, typer.Option(help="Where to keep the results.")] = RESULTS,
) -> None:
    """Send mixed requests; print what each process holds at first, at half time and at the end; write memory.json."""
    pair = build()
    file = ResultFile(results, head({"minutes": minutes, "clients": clients}))
    engine, side = halves()

    async def run(folder: Path) -> None:
        counts = Counts(folder)
        target = default_model()
        async with Stack(
            target, engine_cores=engine, side_cores=side, ctx=8192, parallel=4, commands=counts.commands
        ) as stack:
            drafter = await stack.start_drafter(pair.draft_4bit)
            pids = {"gateway": stack.gateway.pid, "verifier": stack.verifier.pid, "drafter": drafter.pid}
            await _measure(stack, counts, pids | {"valkey": stack.valkey.pid}, minutes * 60, clients, file)

    with TemporaryDirectory(prefix="draftmesh-counts-") as folder:
        to_end(run(Path(folder)))


async def _measure(
    stack: Stack, counts: Counts, pids: Mapping[str, int], seconds: float, clients: int, file: ResultFile
) -> None:
    crowd = Crowd(stack.http)
    samples: dict[str, list[Held]] = {name: [] for name in pids}
    types: dict[int, dict[str, dict[str, int]]] = {}
    began = time.monotonic()
    with console.status("") as status:
        for number in range(SAMPLES):
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(crowd.ask(began + seconds * (number + 1) / SAMPLES))
            for name, pid in pids.items():
                samples[name].append(held(pid, time.monotonic() - began))
            if number + 1 in (SAMPLES // 2, SAMPLES):
                types[number + 1] = counts.read(pids)
            status.update(f"{sum(crowd.asked.values())} requests in {time.monotonic() - began:.0f} s")
    more = {name: grown(types[SAMPLES // 2][name], types[SAMPLES][name]) for name in SERVICES}
    file.keep({"asked": crowd.asked, "processes": as_json(samples, more)})
    console.print(f"{sum(crowd.asked.values())} requests in {time.monotonic() - began:.0f} s: {crowd.asked}")
    console.print(table(samples))
    for name, found in more.items():
        shown = ", ".join(f"{kind} {before} → {after}" for kind, (before, after) in found.items())
        console.print(f"{name}, objects at half-time and at the end: {shown or 'none more'}")
    console.print(f"written to {file.path}")


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.endurance")
