"""`draftmesh drafter`: guess ahead with a small model, or by lookup when no model is named."""

import asyncio
from typing import Annotated

import structlog
import typer

from services.drafter.card import introduce
from services.drafter.lookup_proposer import LookupProposer
from services.drafter.worker import DrafterWorker
from shared.fleet.arriving import Arriving
from shared.fleet.registry import Registry, draft_keeper
from shared.model import model_source
from shared.model.offload import AUTO
from shared.process import lifecycle, logs
from shared.settings import command_line, options
from shared.wire.broker import check, connect

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
    # Report wrong options before connecting to Redis or loading anything.
    check(redis)
    if draft_model:
        model_source.check(draft_model, "--draft-model")
        # Only a model drafter pays for importing llama.cpp.
        from services.drafter.place import named, place_drafter

        place = named(draft_device)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(redis) as broker:
            instance = f"drafter-{name.removeprefix('drafter-')}" if name else lifecycle.instance_name("drafter")
            if not draft_model:
                lookup = LookupProposer()
                await DrafterWorker(broker, lookup, introduce(instance, "lookup", lookup.capacity)).run(stop)
                return
            from services.drafter.load import ModelDrafter, find

            registry = Registry(broker.redis)
            async with Arriving(registry, instance, "drafter", threads) as arriving:
                # The file comes first, so that its errors are reported before any wait for a verifier.
                path = await asyncio.to_thread(find, draft_model)
                found = await place_drafter(place, arriving, gpu_layers, stop)
                if found is None:
                    return
                drafter = await asyncio.to_thread(
                    ModelDrafter, draft_model, path, found, ctx, parallel, arriving.threads, gpu_layers
                )
            keeper = draft_keeper(registry, drafter.texts)
            logger.info("drafter_ready", instance=instance, model=drafter.name, device=drafter.device)
            await DrafterWorker(broker, drafter.proposer, drafter.card(instance, keeper.digest), keeper.keep).run(stop)
            drafter.close()

    lifecycle.run(serve)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh drafter")
