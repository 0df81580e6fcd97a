"""A verifier with an emulated target: `python -m bench.paced.verifier` takes the verifier's options and a curve.

The worker, its loops and its engine are the product's; the target and the costs of its rows are not.
"""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, cast

import structlog
import typer

from bench.paced.scripted import Recording, Scripted, record
from bench.paced.target import Curve, Paced, parse_curve
from services.verifier.load import LoadedTarget, load
from services.verifier.worker import VerifierWorker
from shared.model.llama.context import Context
from shared.model.llama.placement import place_target
from shared.model.target import Target
from shared.process import lifecycle, logs
from shared.settings import command_line
from shared.settings.verifier_options import VerifierOptions
from shared.wire.broker import connect
from shared.wire.messages import Sampling, Speculation

logger = structlog.get_logger()


def main(
    curve: Annotated[str, typer.Option(help="Milliseconds per decode and per row, such as 100+3.")],
    max_rows: Annotated[int, typer.Option(help="Rows of a decode; 0: as many as the real target takes.")] = 0,
    trees: Annotated[bool, typer.Option(help="Verify trees of drafts, or chains only.")] = True,
    script: Annotated[Path | None, typer.Option(help="Requests to record and replay instead of computing.")] = None,
    options: VerifierOptions = VerifierOptions(),
) -> None:
    """Serve as a verifier whose decodes take as long as the curve says. For measurements only."""
    logs.configure("verifier", options.log_level)
    pace = parse_curve(curve)

    async def serve(stop: asyncio.Event) -> None:
        async with connect(options.redis) as broker:
            loaded = await asyncio.to_thread(_load, options, pace, max_rows, script)
            worker = VerifierWorker(broker, loaded, Speculation.AUTO, lifecycle.instance_name("paced"), trees=trees)
            await worker.run(stop)
            logger.info("paced_verifier_stopped", overruns=loaded.context.overruns)  # type: ignore[attr-defined]
            loaded.context.close()
            loaded.model.close()

    lifecycle.run(serve)


def _load(settings: VerifierOptions, curve: Curve, max_rows: int, script: Path | None) -> LoadedTarget:
    loaded = load(settings, place_target("auto"))
    inner: Target = loaded.context
    if script is not None:
        requests: list[dict[str, Any]] = json.loads(script.read_text())
        recordings = [
            Recording(
                prompt=tuple(one["prompt"]),
                sampling=Sampling(seed=one["seed"], temperature=one["temperature"]),
                tokens=one["tokens"],
            )
            for one in requests
        ]
        answers = record(inner, recordings, frozenset(loaded.model.vocabulary.eog))
        inner = Scripted(answers, n_ctx=inner.n_ctx, sequences=inner.sequences)
        loaded.context.close()
    paced = Paced(inner, curve, max_rows)
    return dataclasses.replace(
        loaded,
        context=cast(Context, paced),
        costs=curve.costs,
        device=f"emulated {curve} ms",
        level="law",
        note="a paced target: time is emulated",
        min_rows=1,
    )


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced.verifier")
