"""`draftmesh up`."""

from typing import Annotated

import typer

from services.launcher.commands.redis_options import EmbeddedRedis, RedisHost, RedisPort
from services.launcher.fleet.fleet_plan import UpOptions
from services.launcher.fleet.ports import LOOPBACK
from shared.model.offload import AUTO
from shared.settings import options
from shared.wire.messages import Speculation

SpeculationMode = Annotated[
    Speculation,
    typer.Option(
        "--speculation", envvar="DRAFTMESH_SPECULATION", help="Verify drafts: auto (where they pay), always or off."
    ),
]


def up(
    context: typer.Context,
    target_model: options.TargetModels = ["default"],  # noqa: B006 - typer copies it
    alias: options.ModelAliases = [],  # noqa: B006
    draft_model: options.DraftModels = [],  # noqa: B006
    target_device: options.TargetDevices = [],  # noqa: B006
    draft_device: options.DraftDevices = [],  # noqa: B006
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
    lan: Annotated[
        bool,
        typer.Option(
            "--lan",
            envvar="DRAFTMESH_LAN",
            help="Let other machines of the network use the gateway, with a key, and join with `draftmesh join`.",
        ),
    ] = False,
    join_token: Annotated[
        str,
        typer.Option(
            "--join-token",
            envvar="DRAFTMESH_JOIN_TOKEN",
            help="Token that machines need to join; empty: one that `up` makes once and keeps in the state folder.",
        ),
    ] = "",
    api_keys_file: options.ApiKeysFile = "",
    no_auth: options.NoAuth = False,
    redis: EmbeddedRedis = "",
    redis_port: RedisPort = 7072,
    redis_host: RedisHost = LOOPBACK,
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    threads: options.Threads = 0,
    cache_type_k: options.CacheTypeK = options.CacheType.AUTO,
    cache_type_v: options.CacheTypeV = options.CacheType.AUTO,
    flash_attn: options.FlashAttention = options.Switch.AUTO,
    exactness: options.ExactnessLevel = options.Exactness.AUTO,
    gpu_layers: options.GpuLayers = AUTO,
    tensor_split: options.TensorSplit = "",
    offline: options.Offline = False,
    speculation: SpeculationMode = Speculation.AUTO,
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Start everything on this machine: Valkey, gateway, verifier, drafters."""
    from services.launcher.fleet.up import run, variables
    from services.launcher.settings.service_options import hand_down
    from shared.settings.command_settings import keys

    handed = hand_down(context.obj.file if context.obj else None, keys(context.command))
    # These parameters are only the command's, so they are exactly the fields of `UpOptions`.
    return run(UpOptions(**context.params), variables(context.command.params), handed)
