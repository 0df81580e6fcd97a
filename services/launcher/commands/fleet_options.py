"""How commands find the fleet to look at: from an option, or from the file of a running `up`."""

from typing import TYPE_CHECKING, Annotated

import typer

from shared.errors import StartError
from shared.settings import options

if TYPE_CHECKING:
    from services.launcher.facts.run_file import FleetRun

Up = Annotated[
    int | None,
    typer.Option(
        "--up", metavar="PORT", help="Port of the gateway whose `up` is meant, if several run on this machine."
    ),
]


def redis_of(context: typer.Context, redis: str, up: int | None) -> str:
    """`redis` if the user gave it in any way, else that of the running `up`, else the default address.

    Raises `StartError` if several are running and the user named none.
    """
    if up is None and is_given(context, "redis"):
        return redis
    run = _run(context, "redis", up)
    return run.redis if run else options.DEFAULT_REDIS


def gateway_of(context: typer.Context, name: str, url: str, up: int | None) -> str:
    """The gateway's URL in the same way; `name` is the parameter that holds it, `url` its value or default."""
    if up is None and is_given(context, name):
        return url
    run = _run(context, name, up)
    return run.gateway if run else url


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the parameter `name` came from anywhere but our own default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _run(context: typer.Context, name: str, up: int | None) -> "FleetRun | None":
    from services.launcher.facts.run_file import chosen

    source = context.get_parameter_source(name)
    if up is not None and source is not None and source.name == "COMMANDLINE":
        raise StartError("--up", up, f"names a fleet and so does {name}; give only one of them")
    return chosen(up)
