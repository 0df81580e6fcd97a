"""`draftmesh drafter`: guess ahead with a small model, or by lookup when no model is named."""

import asyncio
from typing import Annotated

import structlog
import typer

from services.drafter.card import introduce
from services.drafter.lookup_proposer import LookupProposer
from services.drafter.worker import Worker
from shared import devices, lifecycle, logs, models, options, usage
from shared.broker import check, connect
from shared.placement import AUTO
from shared.registry import Registry, draft_keeper

logger = structlog.get_logger()


def main(
    redis: options.Redis = options.DEFAULT_REDIS,
    draft_model: options.DraftModel = "",
    draft_device: options.DraftDevice = "auto",
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    threads: options.Threads = 0,
    gpu_layers: options.GpuLayers = AUTO,
    offline: options.Offline = False,
    log_level: options.LogLevel = options.Level.INFO,
    name: Annotated[str, typer.Option(envvar="DRAFTMESH_NAME", help="Name shown by status; default: made up.")] = "",
) -> None:
    """Guess what the target will say; nothing depends on it."""
    logs.configure("drafter", log_level)
    # What is wrong on the command line is told before Redis is asked and anything is loaded.
    check(redis)
    if draft_model:
        _check_draft(draft_model, draft_device)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(redis) as broker:
            instance = f"drafter-{name.removeprefix('drafter-')}" if name else lifecycle.instance_name("drafter")
            if not draft_model:
                lookup = LookupProposer()
                await Worker(broker, lookup, introduce(instance, "lookup", lookup.capacity)).run(stop)
                return
            # Only a model drafter pays for importing llama.cpp.
            from services.drafter.load import ModelDrafter

            drafter = await asyncio.to_thread(
                ModelDrafter, draft_model, draft_device, ctx, parallel, threads, gpu_layers
            )
            keeper = draft_keeper(Registry(broker.redis), drafter.texts)
            logger.info("drafter_ready", instance=instance, model=drafter.name, device=drafter.device)
            await Worker(broker, drafter.proposer, drafter.card(instance, keeper.digest), keeper.keep).run(stop)
            drafter.close()

    lifecycle.run(serve)


def _check_draft(model: str, device: str) -> None:
    from shared.llama.backend_device import backend_devices

    models.check(model, "--draft-model")
    devices.choose(device, backend_devices(), "--draft-device")


if __name__ == "__main__":
    usage.run(usage.command(main), "draftmesh drafter")
