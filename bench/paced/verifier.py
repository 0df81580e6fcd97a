"""A verifier with an emulated target: `python -m bench.paced.verifier` takes the verifier's options and a curve.

The worker, its loops and its engine are the product's; the target and the costs of its rows are not.
"""

import asyncio
from pathlib import Path
from typing import Annotated, cast

import typer

from bench.paced import bigram
from bench.paced.target import Curve, Emulated, parse_curve
from bench.paced.watch import Watch
from services.verifier.load import LoadedTarget
from services.verifier.worker import VerifierWorker
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.process import lifecycle, logs
from shared.settings import command_line
from shared.settings.verifier_options import VerifierOptions
from shared.wire.broker import connect
from shared.wire.messages import Speculation


def main(
    curve: Annotated[str, typer.Option(help="Milliseconds per decode and per row, such as 100+3.")],
    record: Annotated[Path, typer.Option(help="Where to write what each round took.")],
    trees: Annotated[bool, typer.Option(help="Verify trees of drafts, or chains only.")] = True,
    options: VerifierOptions = VerifierOptions(),
) -> None:
    """Serve as a verifier whose decodes take as long as the curve says. For measurements only.

    Of the target's file only the vocabulary is read.
    """
    logs.configure("verifier", options.log_level)
    pace = parse_curve(curve)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(options.redis) as broker:
            loaded = _load(options, pace)
            worker = VerifierWorker(broker, loaded, Speculation.AUTO, lifecycle.instance_name("paced"), trees=trees)
            Watch(worker._engine, record)
            await worker.run(stop)
            loaded.model.close()

    lifecycle.run(serve)


def _load(options: VerifierOptions, curve: Curve) -> LoadedTarget:
    target = Emulated(bigram.table(), curve, n_ctx=options.target.ctx, sequences=options.target.parallel)
    return LoadedTarget(
        model=Model(Path(options.target_model), vocab_only=True),
        context=cast(Context, target),
        costs=curve.costs,
        device=f"emulated {curve} ms",
        level="law",
        note="an emulated target",
        noise=0.0,
        min_rows=1,
    )


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced.verifier")
