"""A drafter that knows the answers: `python -m bench.paced.scripted` keeps up with any target.

It runs as the real drafter does, so messages and their timing are real. Its guesses are in a file, mistakes included.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from bench import drafting
from services.drafter.proposer import Draft, Opening
from services.drafter.proposer import Path as Tokens
from shared.settings import command_line, options

_STEP_US: Final = 100  # what it says a token takes
_CHAIN: Final = 8  # tokens per message


class Guesses(msgspec.Struct, frozen=True):
    """What to guess for the request with this seed and temperature, and how often it is right."""

    seed: int
    temperature: float
    tokens: tuple[int, ...]
    right: float


class ScriptedProposer:
    """The guesses of a script, as many ahead as it is told; requests that it does not name get none."""

    burst = 1
    step_us = _STEP_US

    def __init__(self, script: list[Guesses]) -> None:
        self._script = {(one.seed, one.temperature): one for one in script}
        self._sessions: dict[str, tuple[Guesses, Tokens]] = {}
        self._leads: dict[str, int] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(self._due(name) > 0 for name in self._sessions)

    def _due(self, name: str) -> int:
        """How many tokens to guess next."""
        guesses, path = self._sessions[name]
        return min(_CHAIN, self._leads[name] - path.lead, len(guesses.tokens) - len(path.output))

    def open(self, opening: Opening) -> None:
        guesses = self._script.get((opening.sampling.seed, opening.sampling.temperature))
        if guesses is not None:
            self._sessions[opening.request_id] = guesses, Tokens(opening.prompt, opening.committed)
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
        for name, (guesses, path) in self._sessions.items():
            count = self._due(name)
            if count <= 0:
                continue
            base = len(path.output)
            prefix_hash = path.hash(base)
            tokens = guesses.tokens[base : base + count]
            for token in tokens:
                path.guess(token)
            drafts.append(Draft(name, base, prefix_hash, tokens, (guesses.right,) * count))
        return drafts


def main(
    draft_model: Annotated[Path, typer.Option(help="The model whose vocabulary it guesses from.")],
    script: Annotated[Path, typer.Option(help="What to guess.")],
    redis: options.Redis = options.DEFAULT_REDIS,
    threads: options.Threads = 1,
) -> None:
    """Guess by the script until stopped. `--threads` is taken for the real drafter's sake and not used."""
    guesses = msgspec.json.decode(script.read_bytes(), type=list[Guesses])
    drafting.serve(ScriptedProposer(guesses), "scripted", draft_model, redis)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.paced.scripted")
