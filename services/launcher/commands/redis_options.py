"""Options of commands that may bring a Redis of their own."""

from typing import Annotated

import typer

EmbeddedRedis = Annotated[
    str,
    typer.Option("--redis", envvar="DRAFTMESH_REDIS", help="A Redis or Valkey to use; empty: an embedded Valkey."),
]
RedisPort = Annotated[
    int,
    typer.Option("--redis-port", envvar="DRAFTMESH_REDIS_PORT", help="Port of the embedded Valkey.", min=0, max=65535),
]
RedisHost = Annotated[
    str,
    typer.Option(
        "--redis-host",
        envvar="DRAFTMESH_REDIS_HOST",
        help="Address on which the embedded Valkey listens; beyond the loopback, it wants a password.",
    ),
]
