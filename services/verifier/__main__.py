"""`draftmesh verifier`: load the target, measure it, serve."""

import asyncio
import sys
from typing import Final

import structlog

from services.verifier.host_cache import budget
from services.verifier.load import load
from services.verifier.worker import VerifierWorker
from shared.fleet.arriving import Arriving
from shared.fleet.model_names import check_aliases
from shared.fleet.registry import Registry
from shared.law import native
from shared.machine import resources
from shared.model import chat_templates, model_source
from shared.model.llama.placement import place_target
from shared.process import lifecycle, logs, tracing
from shared.settings import command_line
from shared.settings.verifier_options import VerifierOptions
from shared.wire.broker import check, connect

logger = structlog.get_logger()

# How long the event loop may keep Python's lock while the target's thread wants it. Python's own 5 ms are half a decode
# on a good card.
SWITCH_S: Final = 0.0002


def main(options: VerifierOptions) -> None:
    """Own the target model and decide every token."""
    logs.configure("verifier", options.log_level)
    sys.setswitchinterval(SWITCH_S)
    # Report wrong options before connecting to Redis or loading anything.
    check(options.redis)
    model_source.check(options.target_model, "--target-model")
    target = options.target
    place = place_target(options.target_device, target.tensor_split)
    aliases = check_aliases(options.alias)
    template = chat_templates.find(options.chat_template)

    async def serve(stop: asyncio.Event) -> None:
        instance = lifecycle.instance_name("verifier")
        with tracing.tracer(options.traces, "verifier", instance) as tracer:
            async with connect(options.redis) as broker:
                async with Arriving(Registry(broker.redis), instance, "verifier", target.threads) as arriving:
                    await arriving.place([device.plain() for device in place.gpus], place.on_cpu(target.gpu_layers))
                    loaded = await asyncio.to_thread(load, options, place, arriving.threads)
                if native.FAULT:
                    logger.warning("native_draws_missing", reason=native.FAULT)
                logger.info("verifier_ready", instance=instance, device=loaded.device, exactness=loaded.level)
                lease_ms = int(options.lease * 1000)
                worker = VerifierWorker(
                    broker,
                    loaded,
                    target.speculation,
                    instance,
                    lease_ms,
                    tracer=tracer,
                    aliases=aliases,
                    ready_file=options.ready_file,
                    chat_template=template,
                    cache_ram=budget(target.cache_ram, resources.available_memory()),
                )
                await worker.run(stop)
                loaded.context.close()
                loaded.model.close()

    lifecycle.run(serve)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh verifier")
