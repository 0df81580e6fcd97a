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
from shared.settings import command_line
from shared.settings.verifier_options import VerifierOptions
from shared.wire.broker import connect
from shared.wire.messages import Speculation

TURN: Final = "<|im_start|>assistant\n"  # the default model's


def main(options: VerifierOptions) -> None:
    """Serve as a verifier that knows the vocabulary and the template of a model, and plays what prompts ask for."""
    logs.configure("verifier", options.log_level)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(options.redis) as broker:
            model = Model(model_source.resolve(options.target_model), vocab_only=True)
            target = options.target
            player = Player(model.vocabulary, answer, TURN, n_ctx=target.ctx, sequences=target.parallel)
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
            instance = lifecycle.instance_name("player")
            await VerifierWorker(broker, loaded, Speculation.AUTO, instance, trees=False).run(stop)
            model.close()

    lifecycle.run(serve)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m clients.verifier")
