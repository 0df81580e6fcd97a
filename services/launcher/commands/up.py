"""`draftmesh up`."""

from typing import Annotated

import typer

from services.launcher.commands.redis_options import EmbeddedRedis, RedisHost, RedisPort
from services.launcher.plan import Wishes
from services.launcher.ports import LOOPBACK
from shared import options
from shared.messages import Speculation

SpeculationMode = Annotated[
    Speculation,
    typer.Option("--speculation", envvar="DRAFTMESH_SPECULATION", help="Verify drafts where they pay, always, never."),
]


def up(
    context: typer.Context,
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006 - typer copies it
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
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
    gpu_layers: options.GpuLayers = -1,
    tensor_split: options.TensorSplit = "",
    offline: options.Offline = False,
    speculation: SpeculationMode = Speculation.AUTO,
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Start everything on this machine: Valkey, gateway, verifier, drafters."""
    from services.launcher.service_options import hand_down
    from services.launcher.up import run, variables
    from shared.settings import keys

    handed = hand_down(context.obj.file if context.obj else None, keys(context.command))
    # The callback's parameters and the command's are apart, so these are exactly the fields of `Wishes`.
    return run(Wishes(**context.params), variables(context.command.params), handed)
