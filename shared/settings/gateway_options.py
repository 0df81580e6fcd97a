"""The options of a gateway."""

from dataclasses import dataclass, field
from typing import Annotated

from shared.settings import options
from shared.settings.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options of one gateway."""

    redis: options.Redis = options.DEFAULT_REDIS
    host: options.Host = options.DEFAULT_HOST
    port: options.Port = options.DEFAULT_PORT
    max_requests: Annotated[
        int,
        option(
            "--max-requests",
            help="Requests of a model that may run or wait at once; the gateway answers more with 503.",
            min=1,
        ),
    ] = 256
    max_requests_per_key: Annotated[
        int,
        option(
            "--max-requests-per-key",
            help="Requests of a model that one API key may have at once; the gateway answers more with 429. 0: up to"
            " seven times the free places.",
            min=0,
        ),
    ] = 0
    max_requests_per_minute: Annotated[
        int,
        option(
            "--max-requests-per-minute",
            help="Requests that one API key may send in a minute; the gateway answers more with 429. 0: no limit.",
            min=0,
        ),
    ] = 6000
    max_megabytes_per_minute: Annotated[
        int,
        option(
            "--max-megabytes-per-minute",
            help="Megabytes that the requests of one API key may have in a minute; the gateway answers more with 429."
            " 0: no limit.",
            min=0,
        ),
    ] = 500
    max_live_tokens: Annotated[
        int,
        option(
            "--max-live-tokens",
            help="Tokens, prompts and longest answers together, of all requests of a model at once; 0: 32 times what"
            " its verifiers hold.",
            min=0,
        ),
    ] = 0
    api_key: Annotated[list[str], option("--api-key", help="Key that clients must send; repeat for several.")] = field(
        default_factory=list, repr=False
    )
    api_keys_file: options.ApiKeysFile = ""
    no_auth: options.NoAuth = False
    published_host: Annotated[
        str,
        option(
            "--published-host",
            help="Address at which clients reach the gateway if it is not --host, as for a container.",
        ),
    ] = ""
    request_timeout: Annotated[float, option("--request-timeout", help="Seconds that one request may take.", min=1)] = (
        3600.0
    )
    absence_grace: Annotated[
        float,
        option(
            "--absence-grace",
            help="Seconds for which requests go on waiting when the last verifier of their model has gone; longer than"
            " one needs to load the model.",
            min=0,
        ),
    ] = 60.0
    drain: options.Drain = options.DEFAULT_DRAIN_S
    traces: options.TraceExport = options.Traces.OFF
    log_level: options.LogLevel = options.Level.INFO
