"""Makes the constant part of a drafter's card; the worker adds the rest at each heartbeat."""

import os
import socket
import time

from shared.wire.messages import DrafterCard


def introduce(instance: str, kind: str, capacity: int) -> DrafterCard:
    """The card of this process without sessions, for a drafter without a model and a vocabulary."""
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
