"""Toy partners of a whole-system run: a target that answers from memory, drafters that know the answer more or less."""

import random
import struct
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any, cast

from services.drafter.proposer import Draft, Opening, Path
from services.verifier.load import LoadedTarget
from shared.law.sampling import Logits
from shared.law.speedup import RowCosts
from shared.wire.messages import Job, Sampling
from tests.toys import EOG, ToyTarget, ToyVocabulary, logits_after, plain_answer

N_CTX = 64
PLAIN_MS = 20.0  # a decode of one row
STEP_MS = 8.0  # of a drafter
VOCABULARY = ToyVocabulary()


@lru_cache(50_000)
def _logits(tokens: tuple[int, ...]) -> Logits:
    return logits_after(tokens)


@lru_cache(10_000)
def reference(prompt: tuple[int, ...], sampling: Sampling, max_tokens: int) -> tuple[int, ...]:
    """What an answer is, whoever computes it."""
    job = Job(request_id="r", model="toy", prompt=prompt, sampling=sampling, max_tokens=max_tokens)
    return tuple(plain_answer(job, n_ctx=N_CTX))


def vocabulary_file(folder: FilePath) -> FilePath:
    """A GGUF without anything in it."""
    path = folder / "toy.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    return path


def loaded(path: FilePath, spend: Callable[[float], None], slots: int) -> LoadedTarget:
    """A toy target that looks loaded and takes its time."""
    costs = RowCosts({1: PLAIN_MS, 2: PLAIN_MS * 1.05, 8: PLAIN_MS * 1.3, 64: PLAIN_MS * 3})

    def took(rows: int) -> None:
        spend(costs(rows) / 1000)

    target = ToyTarget(n_ctx=N_CTX, sequences=slots, took=took, model=lambda tokens: _logits(tuple(tokens)))
    target.decodes = cast(Any, deque(maxlen=1))
    return LoadedTarget(
        model=cast(Any, SimpleNamespace(path=path, vocabulary=VOCABULARY)),
        context=cast(Any, target),
        costs=RowCosts(dict(costs.table)),
        device="cpu",
        level="strict",
        note="a toy",
        noise=0.0,
        min_rows=1,
    )


class Guesser:
    """A drafter that guesses the next token of an answer with probability `skill`, and otherwise anything at all."""

    def __init__(self, skill: float, source: random.Random, spend: Callable[[float], None], most: int = 4) -> None:
        self._skill = skill
        self._random = source
        self._spend = spend
        self._most = most
        self._sessions: dict[str, tuple[Opening, Path, tuple[int, ...]]] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(path.lead < self._most for _, path, _ in self._sessions.values())

    @property
    def step_us(self) -> int:
        return int(STEP_MS * 1000)

    @property
    def burst(self) -> int:
        return 2

    def open(self, opening: Opening) -> None:
        answer = (*reference(opening.prompt, opening.sampling, N_CTX), EOG)
        self._sessions[opening.request_id] = (opening, Path(opening.prompt, opening.committed), answer)

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        session = self._sessions.get(request_id)
        return session is None or session[1].commit(base, tokens) is not None

    def close(self, request_id: str) -> None:
        self._sessions.pop(request_id, None)

    def step(self) -> list[Draft]:
        self._spend(STEP_MS / 1000)
        drafts = []
        for request_id, (opening, path, answer) in self._sessions.items():
            if path.lead >= self._most:
                continue
            base = len(path.output)
            right = base < len(answer) and self._random.random() < self._skill
            token = answer[base] if right else self._random.randrange(opening.n_vocab)
            drafts.append(Draft(request_id, base, path.hash(base), (token,), (0.9 if right else 0.5,)))
            path.guess(token)
        return drafts
