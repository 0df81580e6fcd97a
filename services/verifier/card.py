"""Makes the verifier's card: the constant part once, and the engine's figures at each heartbeat."""

import os
import socket
import time
from collections.abc import Sequence

from msgspec.structs import replace

from services.verifier.engine import Engine
from services.verifier.introductions import Introductions
from services.verifier.load import LoadedTarget
from services.verifier.speed import Speed
from shared.model import model_source
from shared.wire.messages import Speculation, VerifierCard


def introduce(
    instance: str, loaded: LoadedTarget, introductions: Introductions, speculation: Speculation, aliases: Sequence[str]
) -> VerifierCard:
    """The card of this process, idle."""
    target = loaded.context
    return VerifierCard(
        id=instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        model=model_source.model_name(loaded.model.path),
        fingerprint=introductions.fingerprint,
        vocabulary=introductions.keeper.digest,
        n_vocab=target.n_vocab,
        n_ctx=target.n_ctx,
        slots=target.sequences,
        device=loaded.device,
        exactness=loaded.level,
        exactness_note=loaded.note,
        layout="unified" if target.unified else "streams",
        speculation=speculation,
        created=int(time.time()),
        aliases=tuple(aliases),
        cells=target.n_ctx * target.sequences,
        site=loaded.site,
        can_roll_back=target.can_roll_back,
    )


def at_work(card: VerifierCard, engine: Engine, speed: Speed, now_s: float, draining: bool) -> VerifierCard:
    """The card with the figures at `now_s` of the engine's clock."""
    tokens_per_second, plain = speed.rates(now_s)
    return replace(
        card,
        row_ms=engine.costs.table,
        counters=dict(engine.counters.values),
        accepted_per_position=tuple(engine.counters.accepted_per_position),
        starts=engine.counters.starts,
        drafters=tuple(drafter.counts for drafter in engine.drafters),
        refused=tuple(engine.drafters.refused.items()),
        requests=tuple(generation.status(now_s * 1000) for generation in engine.running),
        draining=draining,
        sharing=engine.sharing.turns.mode,
        tokens_per_second=tokens_per_second,
        plain_tokens_per_second=plain,
        speedup=speed.speedup,
        tokens_per_round=speed.tokens_per_round,
        cells_used=engine.sequences.held,
        cells_running=engine.sequences.running,
    )
