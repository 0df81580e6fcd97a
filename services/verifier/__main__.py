"""`draftmesh verifier`: load the target, measure it, serve."""

import asyncio
from typing import Annotated

import structlog
import typer

from services.verifier.load import TargetSettings, load
from services.verifier.worker import VerifierWorker
from shared.fleet.arriving import Arriving
from shared.fleet.model_names import check_aliases
from shared.fleet.registry import Registry
from shared.model import model_source
from shared.model.llama.placement import place_target
from shared.model.offload import AUTO
from shared.process import lifecycle, logs, tracing
from shared.settings import command_line, options
from shared.wire.broker import check, connect
from shared.wire.messages import Speculation

logger = structlog.get_logger()


def main(
    redis: options.Redis = options.DEFAULT_REDIS,
    target_model: options.TargetModel = "default",
    alias: options.Aliases = [],  # noqa: B006 - typer copies it
    target_device: options.TargetDevice = "auto",
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
    speculation: Annotated[
        Speculation,
        typer.Option(
            envvar="DRAFTMESH_SPECULATION", help="Verify drafts where they pay (auto), always, or never (off)."
        ),
    ] = Speculation.AUTO,
    lease: Annotated[
        float,
        typer.Option(envvar="DRAFTMESH_LEASE", min=0.5, help="Seconds after which a silent verifier is replaced."),
    ] = 10.0,
    traces: options.TraceExport = options.Traces.OFF,
    log_level: options.LogLevel = options.Level.INFO,
) -> None:
    """Own the target model and decide every token."""
    logs.configure("verifier", log_level)
    # Report wrong options before connecting to Redis or loading anything.
    check(redis)
    model_source.check(target_model, "--target-model")
    place = place_target(target_device, tensor_split)
    aliases = check_aliases(alias)
    settings = TargetSettings(
        target_model=target_model,
        ctx=ctx,
        parallel=parallel,
        threads=threads,
        cache_type_k=cache_type_k.value,
        cache_type_v=cache_type_v.value,
        flash_attn=flash_attn,
        exactness=exactness,
        gpu_layers=gpu_layers,
        speculation=speculation,
    )

    async def serve(stop: asyncio.Event) -> None:
        instance = lifecycle.instance_name("verifier")
        with tracing.tracer(traces, "verifier", instance) as tracer:
            async with connect(redis) as broker:
                async with Arriving(Registry(broker.redis), instance, "verifier", threads) as arriving:
                    await arriving.place([device.plain() for device in place.gpus], place.on_cpu(gpu_layers))
                    loaded = await asyncio.to_thread(load, settings, place, arriving.threads)
                logger.info("verifier_ready", instance=instance, device=loaded.device, exactness=loaded.level)
                worker = VerifierWorker(
                    broker, loaded, speculation, instance, int(lease * 1000), tracer=tracer, aliases=aliases
                )
                await worker.run(stop)
                loaded.context.close()
                loaded.model.close()

    lifecycle.run(serve)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh verifier")
