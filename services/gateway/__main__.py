"""`python -P -m services.gateway`: starts one gateway from options or their environment twins."""

import gc
from typing import Annotated, Final

import typer

from services.gateway.generation.lost_models import GRACE_S
from services.gateway.service import GatewaySettings, serve
from shared.process import api_keys, lifecycle, logs
from shared.settings import command_line, options

_COLLECT_AFTER: Final = 50_000  # objects made and not freed: a few MB

MaxRequests = Annotated[
    int,
    typer.Option(
        "--max-requests",
        envvar="DRAFTMESH_MAX_REQUESTS",
        help="Requests of a model that may run or wait at once; the gateway answers more with 503.",
        min=1,
    ),
]
MaxRequestsPerKey = Annotated[
    int,
    typer.Option(
        "--max-requests-per-key",
        envvar="DRAFTMESH_MAX_REQUESTS_PER_KEY",
        help="Requests of a model that one API key may have at once; the gateway answers more with 429. 0: up to seven"
        " times the free places.",
        min=0,
    ),
]
MaxLiveTokens = Annotated[
    int,
    typer.Option(
        "--max-live-tokens",
        envvar="DRAFTMESH_MAX_LIVE_TOKENS",
        help="Tokens, prompts and longest answers together, of all requests of a model at once; 0: 32 times what its"
        " verifiers hold.",
        min=0,
    ),
]
ApiKeys = Annotated[
    list[str],
    typer.Option("--api-key", envvar="DRAFTMESH_API_KEY", help="Key that clients must send; repeat for several."),
]
PublishedHost = Annotated[
    str,
    typer.Option(
        "--published-host",
        envvar="DRAFTMESH_PUBLISHED_HOST",
        help="Address at which clients reach the gateway if it is not --host, as for a container.",
    ),
]
RequestTimeout = Annotated[
    float,
    typer.Option(
        "--request-timeout", envvar="DRAFTMESH_REQUEST_TIMEOUT", help="Seconds that one request may take.", min=1
    ),
]
AbsenceGrace = Annotated[
    float,
    typer.Option(
        "--absence-grace",
        envvar="DRAFTMESH_ABSENCE_GRACE",
        help="Seconds for which requests go on waiting when the last verifier of their model has gone; longer than one"
        " needs to load the model.",
        min=0,
    ),
]


def main(
    redis: options.Redis = options.DEFAULT_REDIS,
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
    max_requests: MaxRequests = 256,
    max_requests_per_key: MaxRequestsPerKey = 0,
    max_live_tokens: MaxLiveTokens = 0,
    api_key: ApiKeys = [],  # noqa: B006 - typer copies it
    api_keys_file: options.ApiKeysFile = "",
    no_auth: options.NoAuth = False,
    published_host: PublishedHost = "",
    request_timeout: RequestTimeout = 3600.0,
    absence_grace: AbsenceGrace = GRACE_S,
    traces: options.TraceExport = options.Traces.OFF,
    log_level: options.LogLevel = options.Level.INFO,
) -> None:
    """Speak HTTP to clients for the models that verifiers on this Redis serve."""
    logs.configure("gateway", log_level)
    settings = GatewaySettings(
        redis=redis,
        host=host,
        port=port,
        max_requests=max_requests,
        max_requests_per_key=max_requests_per_key,
        max_live_tokens=max_live_tokens,
        request_timeout_s=request_timeout,
        absence_grace_s=absence_grace,
        api_keys=[api_keys.digest(key) for key in api_key if key],
        api_keys_file=api_keys_file,
        no_auth=no_auth,
        published_host=published_host,
        traces=traces,
    )
    _freeze_garbage_collection()
    lifecycle.run(lambda stop: serve(settings, stop))


def _freeze_garbage_collection() -> None:
    """Keep the cyclic garbage collector from halting every stream: a full collection takes 50 to 90 ms.

    Modules make up most of what the collector scans, and they never become garbage. Each burst of commits allocates
    more than the usual threshold of 700 objects, and reference counting frees all of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh gateway")
