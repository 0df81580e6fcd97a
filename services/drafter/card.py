"""How a drafter introduces itself: what never changes of its card; the worker adds what does."""

import os
import socket
import time

from shared.wire.messages import NOWHERE, DrafterCard, Site


def introduce(
    instance: str,
    kind: str,
    capacity: int,
    *,
    model: str = "",
    fingerprint: str = "",
    vocabulary: str = "",
    n_vocab: int = 0,
    device: str = "cpu",
    step_ms: float = 0.0,
    site: Site = NOWHERE,
) -> DrafterCard:
    """The card of this process, idle. The defaults are those of a drafter that needs no model and no vocabulary."""
    return DrafterCard(
        id=instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        kind=kind,
        model=model,
        fingerprint=fingerprint,
        vocabulary=vocabulary,
        n_vocab=n_vocab,
        device=device,
        capacity=capacity,
        sessions=0,
        tokens_per_second=0.0,
        created=int(time.time()),
        step_ms=step_ms,
        site=site,
    )
