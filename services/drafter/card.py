"""How a drafter introduces itself: what never changes of its card; the worker adds what does."""

import os
import socket
import time

from shared.wire.messages import DrafterCard


def introduce(instance: str, kind: str, capacity: int) -> DrafterCard:
    """The card of this process, idle, as of a drafter that needs no model and no vocabulary."""
    return DrafterCard(
        id=instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        kind=kind,
        model="",
        fingerprint="",
        vocabulary="",
        n_vocab=0,
        device="cpu",
        capacity=capacity,
        sessions=0,
        tokens_per_second=0.0,
        created=int(time.time()),
    )
