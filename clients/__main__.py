"""`python -m clients`: installs clients, tries each against a real gateway, and writes the table in docs/clients.md.

Behind the gateway there is a verifier whose target plays answers (`clients/script.py`), so that what is proved is the
protocol, and afterwards, for clients whose prompts fit, the default model.
"""

import platform
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from clients.installs import Installed, NotInstalled
from clients.results import NOT_TRIED, Result, Verdict, replaced, table
from clients.trials import TRIALS, Task, Trial
from clients.trying import Ground
from services.launcher.fleet.stack import Stack, StackError, run_to_end
from shared.folders import cache_folder
from shared.model import model_source
from shared.settings import command_line

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "clients.md"
PLAYED_CTX: Final = 200_000
REAL_CTX: Final = 2048  # small models tend to talk until it is full, and not every client sets a limit
_SPARE: Final = 256  # tokens for an answer

console = Console(highlight=False, soft_wrap=True)


def main(
    only: Annotated[list[str], typer.Option("--only", help="Clients whose names begin so; writes no table.")] = [],  # noqa: B006
    folder: Annotated[Path | None, typer.Option(help="Where clients are installed; by default in the cache.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one run of a client may take.", min=1)] = 180,
    real: Annotated[bool, typer.Option(help="Try the default model too.")] = True,
) -> None:
    """Try every client."""
    trials = [trial for trial in TRIALS if not only or trial.name.lower().startswith(tuple(map(str.lower, only)))]
    place = (folder or cache_folder() / "clients").resolve()
    place.mkdir(parents=True, exist_ok=True)
    try:
        sys.exit(run_to_end(_run(trials, place, timeout, real, write=not only)))
    except StackError as error:
        command_line.refuse(str(error))


async def _run(trials: Sequence[Trial], folder: Path, timeout_s: float, real: bool, *, write: bool) -> int:
    installed = {trial.name: await _install(trial, folder) for trial in trials}
    results = await _played(trials, installed, folder, timeout_s)
    if real:
        try:
            results = await _real(trials, results, installed, folder, timeout_s)
        except StackError as error:  # what was found before is worth writing down all the same
            console.print(f"the default model was not tried: {error}", markup=False)
    text = table(results, datetime.now(UTC).date().isoformat(), f"{platform.system()} {platform.machine()}")
    console.print(text, markup=False)
    if write:
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), text))
    return int(any(result.failed for result in results))


async def _install(trial: Trial, folder: Path) -> Installed | NotInstalled:
    console.print(f"installing {trial.install.package}")
    try:
        return await trial.install.install(folder)
    except NotInstalled as error:
        console.print(f"  skipped: {error}", markup=False)
        return error


async def _played(
    trials: Sequence[Trial], installed: dict[str, Installed | NotInstalled], folder: Path, timeout_s: float
) -> list[Result]:
    results = []
    async with _ground(folder, timeout_s, PLAYED_CTX, 4, (sys.executable, "-m", "clients.verifier")) as ground:
        for trial in trials:
            found = installed[trial.name]
            opening, text, tools = 0, Verdict(None, str(found)), NOT_TRIED
            if isinstance(found, Installed):
                before = await ground.opening()
                text = await _attempt(ground, trial, "text", trial.text, found)
                opening = await ground.opening() - before
                if trial.tools is not None:
                    tools = await _attempt(ground, trial, "tools", trial.tools, found)
            results.append(
                Result(
                    name=trial.name,
                    version=found.version if isinstance(found, Installed) else "",
                    api=trial.api,
                    text=text,
                    tools=tools,
                    real=NOT_TRIED,
                    opening=opening,
                    remark=trial.remark,
                )
            )
    return results


async def _real(
    trials: Sequence[Trial],
    results: Sequence[Result],
    installed: dict[str, Installed | NotInstalled],
    folder: Path,
    timeout_s: float,
) -> list[Result]:
    """The results with a text turn of the default model, for those that it has the context for."""
    after = []
    async with _ground(folder, timeout_s, REAL_CTX, 2) as ground:
        for trial, result in zip(trials, results, strict=True):
            found, verdict = installed[trial.name], NOT_TRIED
            if result.opening + _SPARE > REAL_CTX:
                verdict = Verdict(None, f"its context of {REAL_CTX:,} tokens is too small")
            elif isinstance(found, Installed) and result.opening:
                task = Task(command=trial.text.command, environment=trial.text.environment)
                verdict = await _attempt(ground, trial, "default model", task, found)
            after.append(replace(result, real=verdict))
    return after


@asynccontextmanager
async def _ground(
    folder: Path, timeout_s: float, ctx: int, parallel: int, verifier: Sequence[str] = ()
) -> AsyncIterator[Ground]:
    target = model_source.resolve("default")
    fleet = Stack(target, engine_cores=(), side_cores=(), ctx=ctx, parallel=parallel, commands={"verifier": verifier})
    async with fleet as stack:
        yield Ground(stack=stack, model=model_source.model_name(target), folder=folder, timeout_s=timeout_s)


async def _attempt(ground: Ground, trial: Trial, kind: str, task: Task, installed: Installed) -> Verdict:
    verdict = await ground.attempt(f"{trial.name}, {kind}".replace(" ", "-").lower(), task, installed)
    console.print(f"{trial.name}, {kind}: {verdict}", markup=False)
    return verdict


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m clients")
