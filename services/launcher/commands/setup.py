"""`draftmesh setup`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from shared.settings import options, settings_file


def setup(
    target_model: Annotated[
        str,
        typer.Option(
            "--target-model", help="Target, as for `up`; by default the largest on this machine that fits a device."
        ),
    ] = "",
    draft_model: Annotated[
        list[str],
        typer.Option("--draft-model", help="Models to try; by default all on this machine that could draft."),
    ] = [],  # noqa: B006
    folder: Annotated[
        list[Path], typer.Option("--folder", help="Look for GGUF files there too; repeat for several.")
    ] = [],  # noqa: B006
    parallel: options.Parallel = 8,
    redis: Annotated[
        str, typer.Option("--redis", help="Redis of a running fleet, whose other machines then count too.")
    ] = "",
    offline: options.Offline = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(settings_file.NAME),
    probe: Annotated[bool, typer.Option("--probe/--no-probe", help="Measure the models, a minute or so.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print the file and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, as without a terminal.")] = False,
) -> int:
    """Look at this machine, propose a split of target and drafters over its devices, and write draftmesh.toml.

    It measures what it proposes, and says what to expect. If drafts would not pay, it says so and proposes none.
    `draftmesh up` then starts what the file says.
    """
    from services.launcher.forecast import setup as proposing

    return proposing.run(
        proposing.SetupOptions(
            target_model=target_model,
            draft_models=tuple(draft_model),
            folders=tuple(folder),
            parallel=parallel,
            redis=redis,
            output=output,
            measure=probe,
            force=force,
            show=show,
            ask=not yes and sys.stdin.isatty() and sys.stderr.isatty(),
        )
    )
