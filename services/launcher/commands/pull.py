"""`draftmesh pull`."""

from typing import Annotated

import typer

from shared.settings import options


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
