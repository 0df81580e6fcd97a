"""`draftmesh drafter`: guess ahead with a small model, or by lookup when no model is named."""

import asyncio
import os
import secrets
from urllib.parse import urlsplit

import structlog

from services.drafter.card import introduce
from services.drafter.lookup_proposer import LookupProposer
from services.drafter.worker import DrafterWorker
from shared.fleet.arriving import Arriving
from shared.fleet.registry import Registry, draft_keeper
from shared.law import native
from shared.model import model_source
from shared.process import lifecycle, logs
from shared.settings import command_line
from shared.settings.drafter_options import DrafterOptions
from shared.wire import keys
from shared.wire.broker import check, connect

logger = structlog.get_logger()


def main(options: DrafterOptions) -> None:
    """Guess what the target will say; nothing depends on it."""
    logs.configure("drafter", options.log_level)
    # Report wrong options before connecting to Redis or loading anything.
    check(options.redis)
    draft = options.draft
    if draft.draft_model:
        model_source.check(draft.draft_model, "--draft-model")
        # Only a model drafter pays for importing llama.cpp.
        from services.drafter.place import named, place_drafter

        place = named(draft.draft_device)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(options.redis) as broker:
            instance = instance_id(options.name, options.redis)
            if not draft.draft_model:
                lookup = LookupProposer()
                card = introduce(instance, "lookup", lookup.capacity)
                await DrafterWorker(broker, lookup, card, ready_file=options.ready_file).run(stop)
                return
            from services.drafter.load import ModelDrafter, find

            registry = Registry(broker.redis)
            async with Arriving(registry, instance, "drafter", draft.threads) as arriving:
                # The file comes first, so that its errors are reported before any wait for a verifier.
                path = await asyncio.to_thread(find, draft.draft_model)
                found = await place_drafter(place, arriving, draft.gpu_layers, stop)
                if found is None:
                    return
                drafter = await asyncio.to_thread(ModelDrafter, draft, path, found, arriving.threads)
            keeper = draft_keeper(registry, instance, drafter.texts)
            if native.FAULT:
                logger.warning("native_draws_missing", reason=native.FAULT)
            logger.info("drafter_ready", instance=instance, model=drafter.name, device=drafter.device)
            card = drafter.card(instance, keeper.digest)
            await DrafterWorker(broker, drafter.proposer, card, keeper.keep, options.ready_file).run(stop)
            drafter.close()

    lifecycle.run(serve)


def instance_id(name: str, redis: str) -> str:
    """The id of this process, from `--name` if it is given. With a machine's own Redis user it begins with that
    user's name, because the user may write no other process's keys."""
    user = urlsplit(redis).username or ""
    if user.startswith("drafter-"):
        return f"{user}{keys.OF_MACHINE}{name or f'{os.getpid()}-{secrets.token_hex(3)}'}"
    return f"drafter-{name.removeprefix('drafter-')}" if name else lifecycle.instance_name("drafter")


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh drafter")
