"""A verifier whose target plays scripts: `python -m clients.verifier` takes the verifier's options.

Everything but the target is the product's: the worker, its engine, and what constrains answers.
"""

import asyncio
from typing import Final, cast

from clients.player import Player
from clients.script import answer
from services.verifier.load import LoadedTarget
from services.verifier.worker import VerifierWorker
from shared.law.speedup import RowCosts
from shared.model import model_source
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.process import lifecycle, logs
from shared.settings import command_line, options
from shared.wire.broker import connect
from shared.wire.messages import Speculation

TURN: Final = "<|im_start|>assistant\n"  # the default model's


def main(
    redis: options.Redis = options.DEFAULT_REDIS,
    target_model: options.TargetModel = "default",
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 1,
    threads: options.Threads = 1,
    exactness: options.ExactnessLevel = options.Exactness.LAW,
) -> None:
    """Serve as a verifier that knows the vocabulary and the template of a model, and plays what prompts ask for."""
    logs.configure("verifier", options.Level.INFO)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(redis) as broker:
            model = Model(model_source.resolve(target_model), vocab_only=True)
            player = Player(model.vocabulary, answer, TURN, n_ctx=ctx, sequences=parallel)
            loaded = LoadedTarget(
                model=model,
                context=cast(Context, player),
                costs=RowCosts({1: 1.0}),
                device="none",
                level="law",
                note="a played target: nothing is computed",
                noise=0.0,
                min_rows=1,
            )
            await VerifierWorker(broker, loaded, Speculation.AUTO, lifecycle.instance_name("player"), trees=False).run(
                stop
            )
            model.close()

    lifecycle.run(serve)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m clients.verifier")
