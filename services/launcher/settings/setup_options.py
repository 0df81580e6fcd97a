"""The options of `setup`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from shared.settings import options, settings_file


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOptions:
    """What `setup` looks at and writes. It decides about every value that is empty."""

    target_model: Annotated[
        str,
        typer.Option(
            "--target-model", help="Target, as for `up`; by default the largest on this machine that fits a device."
        ),
    ] = ""
    draft_model: Annotated[
        list[str],
        typer.Option("--draft-model", help="Models to try; by default all on this machine that could draft."),
    ] = field(default_factory=list)
    folder: Annotated[
        list[Path], typer.Option("--folder", help="Look for GGUF files there too; repeat for several.")
    ] = field(default_factory=list)
    parallel: options.Parallel = 8
    redis: Annotated[
        str, typer.Option("--redis", help="Redis of a running fleet, whose other machines then count too.")
    ] = ""
    offline: options.Offline = False
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(settings_file.NAME)
    probe: Annotated[bool, typer.Option("--probe/--no-probe", help="Measure the models, a minute or so.")] = True
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False
    show: Annotated[bool, typer.Option("--print", help="Print the file and write nothing.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, as without a terminal.")] = False
