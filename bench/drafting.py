"""Runs a proposer of a benchmark as the real drafter's service runs: messages, timing and its card are real."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from services.drafter.card import introduce
from services.drafter.proposer import Proposer
from services.drafter.worker import DrafterWorker
from shared.fleet.registry import Registry, draft_keeper
from shared.model.llama.model import Model
from shared.model.vocabulary import fingerprint
from shared.process import lifecycle, logs
from shared.settings import options
from shared.wire.broker import connect


def serve(proposer: Proposer, name: str, draft_model: Path, redis: options.Redis) -> None:
    """Draft by the proposer until stopped, as a model called `name` with the vocabulary of the draft model."""
    logs.configure("drafter", options.Level.INFO)
    model = Model(draft_model, vocab_only=True)
    texts = model.vocabulary.texts()
    model.close()
    instance = lifecycle.instance_name(name)

    async def run(stop: asyncio.Event) -> None:
        async with connect(redis) as broker:
            keeper = draft_keeper(Registry(broker.redis), instance, texts)
            await keeper.keep()
            card = replace(
                introduce(instance, "model", capacity=8),
                model=name,
                fingerprint=fingerprint(texts),
                vocabulary=keeper.digest,
                n_vocab=len(texts),
            )
            await DrafterWorker(broker, proposer, card, keeper.keep).run(stop)

    lifecycle.run(run)
