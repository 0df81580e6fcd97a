"""`draftmesh demo`."""

from typing import Annotated

import typer


def demo(
    prompt: Annotated[str, typer.Option("--prompt", help="Prompt to answer.")] = "Explain why the sky is blue.",
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens per answer.", min=1, max=4096)] = 64,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Temperature of sampling; 0 is greedy.", min=0.0, max=2.0)
    ] = 0.7,
) -> int:
    """Answer one prompt plainly and one with drafts, live, on a model where speculation pays."""
    from services.launcher.clients import demo as shown

    return shown.run(prompt, tokens, temperature)
