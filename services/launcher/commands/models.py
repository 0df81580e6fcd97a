"""The commands about models on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from shared.settings import options

models = typer.Typer(add_completion=False)


@models.callback(invoke_without_command=True)
def list_models(
    context: typer.Context,
    folder: Annotated[
        list[Path], typer.Option("--folder", help="Look for GGUF files there too; repeat for several.")
    ] = [],  # noqa: B006
    parallel: options.Parallel = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """List the models on this machine, which of them draft for which, and what fits where.

    A drafter needs the target's vocabulary and at most half its size. What fits is estimated from the files and the
    memory that is free now, for --parallel requests at once.
    """
    if context.invoked_subcommand is not None:
        return 0
    from services.launcher.models import model_list

    return model_list.run(folder, parallel, as_json)


@models.command("rm")
def remove(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Models to delete, by the names in `draftmesh models`.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> int:
    """Delete models from this machine: what was pulled, and what draftmesh made in its cache."""
    from services.launcher.models import model_removal

    return model_removal.run(names, yes)


def pull(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="hf:user/repo:QUANT; without QUANT: Q4_K_M. #sha256=DIGEST pins it."),
    ],
    offline: options.Offline = False,
) -> int:
    """Fetch models from the Hugging Face hub; prints the path of each one.

    Continues an earlier download, checks SHA-256 digests, and starts only if the disk has room. HF_HOME says where
    models are kept, HF_TOKEN gives access to gated and private repositories.

    Example: draftmesh pull hf:user/model-GGUF:Q4_K_M
    """
    from services.launcher.models import pull as pulling

    return pulling.run(models)
