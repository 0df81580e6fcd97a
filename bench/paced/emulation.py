"""Emulated targets: which there are, and what is measured of draftmesh around each."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from bench.paced.apart import assert_apart, move
from bench.paced.asking import Asked, ask, prompt, script
from bench.paced.found import PLAIN, AnswerFigures, PacedResult, Sample, findings
from bench.paced.target import Curve
from bench.paced.watch import RecordReader
from bench.processes import cpu_s, delayed_s
from services.launcher.fleet.child import Child
from services.launcher.fleet.cores import Cores
from services.launcher.fleet.stack import Stack

TEMPERATURES: Final = (0.0, 1.0)
ROOM: Final = 1024  # of the context, for answers
SOMETIMES_RIGHT: Final = 0.8
_WARM_UP_TOKENS: Final = 24
_PLAIN_TOKENS: Final = 48  # of an answer without drafts: one a round, so there are rounds enough
_WARM_UP_SEED: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One emulated target. `share` is the decode share that is wanted."""

    name: str
    what: str
    curve: Curve
    share: float


SCENARIOS: Final = (
    Scenario(name="8b", what="8B class on one card", curve=Curve(10, 0.5), share=0.90),
    Scenario(name="27b", what="27B class on one card", curve=Curve(26, 1), share=0.93),
    Scenario(name="70b", what="70B class over several cards", curve=Curve(100, 3), share=0.97),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A running fleet with its drafter, and what its verifier writes."""

    stack: Stack
    drafter: Child
    reader: RecordReader

    @property
    def side(self) -> dict[str, int]:
        """Everything on the other core, by name."""
        return {
            "drafter": self.drafter.pid,
            "gateway": self.stack.gateway.pid,
            "Redis": self.stack.valkey.pid,
            "client": os.getpid(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A way to be asked: by which fleet, with what share of right guesses in the script, with drafts or without."""

    name: str
    fleet: str
    number: int  # keeps its seeds apart from the others'
    right: float = 1.0
    speculative: bool | str = "auto"

    def asks(self, prompt: tuple[int, ...], temperature: float, tokens: int) -> Asked:
        return Asked(
            prompt=prompt,
            temperature=temperature,
            seed=100 + self.number,
            tokens=tokens if self.speculative else min(tokens, _PLAIN_TOKENS),
            right=self.right,
            speculative=self.speculative,
        )


SCRIPTED, REAL, CHAINS = "scripted", "real", "real, chains"
ALWAYS = "scripted, always right"
OFTEN = f"scripted, right {SOMETIMES_RIGHT:.0%}"
CONTESTANTS: Final = (
    Contestant(name=PLAIN, fleet=SCRIPTED, number=0, speculative=False),
    Contestant(name=ALWAYS, fleet=SCRIPTED, number=1),
    Contestant(name=OFTEN, fleet=SCRIPTED, number=2, right=SOMETIMES_RIGHT),
    Contestant(name=REAL, fleet=REAL, number=3),
    Contestant(name=CHAINS, fleet=CHAINS, number=3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """Runs scenarios."""

    model: Path  # the draft model, whose vocabulary is everybody's
    engine_cores: Cores
    side_cores: Cores
    repetitions: int
    context: int
    tokens: int
    step: Callable[..., object]

    async def run(self, scenario: Scenario) -> PacedResult:
        """What is measured of a scenario: everybody in turn, odd repetitions in reverse order."""
        asked = prompt(self.context)
        with tempfile.TemporaryDirectory(prefix="draftmesh-paced-") as folder:
            async with AsyncExitStack() as open_fleets:
                fleets = {}
                for name in (SCRIPTED, REAL, CHAINS):
                    self.step(f"{scenario.name}: starting the fleet {name}")
                    fleets[name] = await self._fleet(open_fleets, scenario, name, Path(folder))
                for temperature in TEMPERATURES:
                    for one in CONTESTANTS:
                        warming = one.asks(asked, temperature, min(_WARM_UP_TOKENS, self.tokens))
                        self.step(f"{scenario.name}: warming up {one.name}", steps=1)
                        await self._ask(fleets[one.fleet], replace(warming, seed=_WARM_UP_SEED))
                samples = await self._compete(scenario, fleets, asked)
        return findings(
            scenario.name,
            scenario.curve,
            scenario.share,
            samples,
            wanted=(ALWAYS, OFTEN),
            alike=OFTEN,
            trees=(REAL, CHAINS),
        )

    async def _fleet(self, open_fleets: AsyncExitStack, scenario: Scenario, name: str, folder: Path) -> Fleet:
        record = folder / f"{name}.jsonl"
        command = [sys.executable, "-m", "bench.paced.verifier", "--curve", str(scenario.curve)]
        command += ["--record", str(record), *(["--no-trees"] if name == CHAINS else [])]
        stack = Stack(
            self.model,
            engine_cores=self.engine_cores,
            side_cores=self.side_cores,
            ctx=self.context + ROOM,
            commands={"verifier": command},
        )
        await open_fleets.enter_async_context(stack)
        guessing: Sequence[str] = ()
        if name == SCRIPTED:
            guesses = folder / "script.json"
            guesses.write_bytes(msgspec.json.encode(script(self._all())))
            guessing = (sys.executable, "-m", "bench.paced.scripted", "--script", str(guesses))
        fleet = Fleet(
            stack=stack, drafter=await stack.start_drafter(self.model, command=guessing), reader=RecordReader(record)
        )
        move(self.side_cores)
        assert_apart(stack, fleet.side)
        return fleet

    def _all(self) -> list[Asked]:
        """Every request to which the scripted drafter knows the answer."""
        asked = prompt(self.context)
        return [
            one.asks(asked, temperature, self.tokens).seeded(repetition)
            for one in CONTESTANTS
            if one.fleet == SCRIPTED and one.speculative
            for temperature in TEMPERATURES
            for repetition in range(self.repetitions)
        ]

    async def _compete(self, scenario: Scenario, fleets: dict[str, Fleet], prompt: tuple[int, ...]) -> list[Sample]:
        samples = []
        for repetition in range(self.repetitions):
            for one in CONTESTANTS if repetition % 2 == 0 else CONTESTANTS[::-1]:
                for temperature in TEMPERATURES:
                    asked = one.asks(prompt, temperature, self.tokens).seeded(repetition)
                    self.step(f"{scenario.name}: {one.name}, temperature {temperature:g}", steps=1)
                    found = await self._ask(fleets[one.fleet], asked)
                    samples.append(Sample(name=one.name, temperature=temperature, repetition=repetition, found=found))
        return samples

    @staticmethod
    async def _ask(fleet: Fleet, asked: Asked) -> AnswerFigures:
        fleet.reader.fresh()
        began, before = time.perf_counter(), {name: cpu_s(pid) for name, pid in fleet.side.items()}
        both = {"verifier": fleet.stack.verifier.pid, "drafter": fleet.drafter.pid}
        delayed = {name: delayed_s(pid) for name, pid in both.items()}
        answer = await ask(fleet.stack.http, asked)
        took = time.perf_counter() - began
        return AnswerFigures(
            rounds=fleet.reader.fresh(),
            tokens=len(answer.tokens),
            tokens_per_second=answer.tokens_per_second,
            first_token_ms=1000 * answer.first_token_s,
            cached=answer.cached_tokens,
            delayed={name: (delayed_s(pid) - delayed[name]) / took for name, pid in both.items()},
            busy={name: (cpu_s(pid) - before[name]) / took for name, pid in fleet.side.items()},
        )
