"""What is asked of an emulated target, and the script of guesses for it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import aiohttp
import numpy as np

from bench.paced import bigram
from bench.paced.scripted import Guesses
from services.launcher.clients.streaming import StreamedAnswer, follow
from shared.wire.messages import Sampling

_PROMPT_SEED: Final = 41


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; `right` is how often the scripted drafter guesses its tokens rightly."""

    prompt: tuple[int, ...]
    temperature: float
    seed: int
    tokens: int
    right: float = 1.0
    speculative: bool | str = "auto"

    def seeded(self, repetition: int) -> "Asked":
        """The same for another repetition."""
        return replace(self, seed=self.seed + 10 * repetition)

    def body(self) -> dict[str, Any]:
        """For the gateway. With the prefix cache, so that each fleet reads the prompt once."""
        return {
            "prompt": list(self.prompt),
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.tokens,
            "speculative": self.speculative,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }


def prompt(tokens: int) -> tuple[int, ...]:
    """A prompt of so many random tokens."""
    return tuple(np.random.default_rng(_PROMPT_SEED).integers(1, bigram.TOKENS, tokens).tolist())


async def ask(http: aiohttp.ClientSession, asked: Asked) -> StreamedAnswer:
    """Stream an answer. Raises `AnswerError`."""
    answer = StreamedAnswer(started=time.perf_counter())
    await follow(http, "/v1/completions", asked.body(), lambda now, event: answer.took(event, now))
    return answer


def script(asked: Iterable[Asked]) -> list[Guesses]:
    """Guesses for these requests; the mistakes fall at random."""
    rows = bigram.table()
    found = []
    for one in asked:
        law = Sampling(seed=one.seed, temperature=one.temperature)
        tokens = list(islice(bigram.answer(rows, one.prompt[-1], law), one.tokens))
        wrong = np.random.default_rng(one.seed).random(len(tokens)) >= one.right
        guessed = tuple(
            1 + token % (bigram.TOKENS - 1) if bad else token for token, bad in zip(tokens, wrong, strict=True)
        )
        found.append(Guesses(seed=one.seed, temperature=one.temperature, tokens=guessed, right=one.right))
    return found
