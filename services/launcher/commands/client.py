"""The commands that use a gateway as a client does."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, gateway_of
from services.launcher.fleet.ports import LOOPBACK
from shared.settings import options


def demo(
    prompt: Annotated[str, typer.Option("--prompt", help="Prompt to answer.")] = "Explain why the sky is blue.",
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens per answer.", min=1, max=4096)] = 32,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Temperature of sampling; 0 is greedy.", min=0.0, max=2.0)
    ] = 0.7,
) -> int:
    """Answer one prompt plainly and one with drafts, live, on a model where speculation pays."""
    from services.launcher.clients import demo as shown

    return shown.run(prompt, tokens, temperature)


def launch(
    context: typer.Context,
    client: Annotated[str, typer.Argument(help="claude, codex, opencode, continue, aider or open-webui.")],
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- ARGUMENTS", help="Arguments after -- go to the client.")
    ] = [],  # noqa: B006
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="DRAFTMESH_URL",
            help="Address of the gateway; by default the running `up`'s.",
            show_envvar=True,
        ),
    ] = f"http://{LOOPBACK}:{options.DEFAULT_PORT}",
    up: Up = None,
    model: Annotated[str, typer.Option("--model", help="A model that is served there; by default the first.")] = "",
    api_key: Annotated[
        list[str], typer.Option("--api-key", envvar="DRAFTMESH_API_KEY", help="The gateway's.", show_envvar=True)
    ] = [],  # noqa: B006
    show: Annotated[bool, typer.Option("--print", help="Print the shell commands instead of running them.")] = False,
) -> int:
    """Start a client so that it uses the gateway; the user's own settings files stay as they are.

    Example: draftmesh launch claude -- -p "What does this program do?"
    """
    from services.launcher.clients import launch as launcher

    gateway = gateway_of(context, "url", url, up)
    key = next(iter(api_key), "")  # the variable may hold all keys of a gateway
    return launcher.run(client, arguments, url=gateway, key=key, model=model, show=show)
