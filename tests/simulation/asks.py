"""What the clients of a whole-system run ask, and how bad the network is: all drawn from the seed."""

import random
from dataclasses import dataclass
from typing import Final

from shared.wire.messages import Job, Sampling, Speculation
from tests.simulation.network import Weather
from tests.toys import EOG

MODEL: Final = "toy"
TIMEOUT_MS: Final = 3_600_000


@dataclass(slots=True)
class Ask:
    """One client: what it asks, when it comes and leaves, and what became of it."""

    jobs: tuple[Job, ...]
    caller: str
    arrives_s: float
    leaves_s: float | None
    stop: tuple[int, ...]  # the token, per choice, that ends the answer like a stop string; or none
    tokens: list[list[int]]
    ends: list[str]  # per choice its finish reasons
    fate: str = ""  # "answered", "left", "cut" (its gateway died), or the code of an error


def draw_weather(source: random.Random) -> Weather:
    """From calm to a storm."""
    severity = source.choice([0.0, 0.3, 1.0, 3.0])
    return Weather(
        lost=0.02 * severity,
        silent=0.03 * severity,
        late=0.02 * severity,
        hop_ms=source.choice([0.5, 3.0, 20.0]),
    )


def draw_ask(source: random.Random, number: int) -> Ask:
    """One of one or two choices, that may end by itself, at a stop string, at its length or too late."""
    prompt = (*range(5, 5 + source.choice([3, 3, 8, 24])), source.randrange(20, 24))
    ending = source.random() < 0.3  # answers that may end by themselves
    choices = source.choice([1, 1, 1, 2])
    timeout_ms = source.choice([*[TIMEOUT_MS] * 9, source.randint(100, 3000)])
    jobs = tuple(
        Job(
            request_id=f"r{number}-{choice}",
            model=MODEL,
            prompt=prompt,
            sampling=Sampling(seed=source.randrange(3), logit_bias=() if ending else ((EOG, -100.0),)),
            max_tokens=source.randint(1, 12),
            speculation=source.choice([Speculation.AUTO, Speculation.ALWAYS, Speculation.OFF]),
            timeout_ms=timeout_ms,
        )
        for choice in range(choices)
    )
    stops: tuple[int, ...] = ()
    if source.random() < 0.2:
        stops = (source.randrange(2, 63),)
    arrives = source.uniform(0.0, 1.5)
    leaves = arrives + source.uniform(0.0, 1.0) if source.random() < 0.2 else None
    return Ask(jobs, "ab"[number % 2], arrives, leaves, stops, [[] for _ in jobs], ["" for _ in jobs])
