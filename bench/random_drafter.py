"""A drafter that guesses at random and is sure of it: `python -m bench.random_drafter` shows what bad drafts cost.

It runs as the real drafter does, so everything but the guesses is real: messages, timing, the judgement of its drafts.
"""

import random
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import drafting
from services.drafter.proposer import Draft, Opening
from services.drafter.proposer import Path as Tokens
from shared.settings import command_line, options

_CONFIDENCE: Final = 0.95
_STEP_US: Final = 5000  # what it says a token takes, as a small model's does: so the verifier may wait for it
_CHAIN: Final = 8  # tokens per message


class RandomProposer:
    """Uniformly random tokens, as many ahead as it is told; deterministic by `seed`."""

    burst = 1
    step_us = _STEP_US

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._sessions: dict[str, tuple[Opening, Tokens]] = {}
        self._leads: dict[str, int] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(path.lead < self._leads[name] for name, (_, path) in self._sessions.items())

    def open(self, opening: Opening) -> None:
        self._sessions[opening.request_id] = opening, Tokens(opening.prompt, opening.committed)
        self._leads[opening.request_id] = opening.lead

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        if request_id not in self._sessions:
            return True
        self._leads[request_id] = lead
        return self._sessions[request_id][1].commit(base, tokens) is not None

    def close(self, request_id: str) -> None:
        self._sessions.pop(request_id, None)

    def step(self) -> list[Draft]:
        drafts = []
        for name, (opening, path) in self._sessions.items():
            count = min(_CHAIN, self._leads[name] - path.lead)
            if count <= 0:
                continue
            base = len(path.output)
            prefix_hash = path.hash(base)
            tokens = tuple(self._random.randrange(opening.n_vocab) for _ in range(count))
            for token in tokens:
                path.guess(token)
            drafts.append(Draft(name, base, prefix_hash, tokens, (_CONFIDENCE,) * count))
        return drafts


def main(
    draft_model: Annotated[Path, typer.Option(help="The model whose vocabulary it guesses from.")],
    redis: options.Redis = options.DEFAULT_REDIS,
    threads: options.Threads = 1,
) -> None:
    """Guess at random until stopped. `--threads` is taken for the real drafter's sake and not used."""
    drafting.serve(RandomProposer(), "random", draft_model, redis)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.random_drafter")
