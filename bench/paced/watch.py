"""Times what an engine does in each round, and where the rest of the time goes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from services.verifier.engine import Engine
from services.verifier.round import Decoded, Round

PHASES: Final = ("take", "plan", "wait", "walk", "settle")

Result = TypeVar("Result")


class SteadyRound(msgspec.Struct, frozen=True):
    """One decode, from its begin to the begin of the next one of the same requests; times in ms.

    `walk` has the draws and the leaves of trees, `wait` is for drafts. What is missing to `wall` is the way between
    threads, the commits and the event loop.
    """

    rows: int
    tokens: int
    wall: float
    decode: float
    take: float
    plan: float
    wait: float
    walk: float
    settle: float
    step: float  # what a token takes the slowest drafter, as it says; 0 without drafters

    @property
    def beside(self) -> float:
        """What no phase accounts for."""
        return self.wall - self.decode - (self.take + self.plan + self.wait + self.walk + self.settle)


class Watch:
    """Appends a line of JSON to a file for every steady round, when a request ends.

    A round is steady if it and the next one read no prompt and decode the same requests.
    """

    def __init__(self, engine: Engine, record: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        """Stands in front of the engine's methods from now on."""
        self._clock = clock
        self._drafters = engine.drafters
        self._record = record
        self._rounds: list[SteadyRound] = []
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._began = 0.0
        self._last: tuple[Decoded, tuple[str, ...]] | None = None
        self._waiting: float | None = None
        self._run, self._plan, self._drop = engine.run, engine.plan, engine.drop
        stand_ins: dict[str, Callable[..., Any]] = {
            "run": self.run,
            "plan": self.plan,
            "drop": self.drop,
            "take": self._timed("take", engine.take),
            "finish": self._timed("settle", engine.finish),
        }
        for name, stand_in in stand_ins.items():
            setattr(engine, name, stand_in)

    def run(self, round: Round) -> Decoded:
        """Decode and walk; the round before ends here."""
        now = self._clock()
        requests = () if round.prefill_rows else tuple(one.generation.job.request_id for one in round.entries)
        if self._last is not None and requests == self._last[1]:
            self._keep(self._last[0], now)
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._began = now
        decoded = self._run(round)
        self._spent["walk"] = (self._clock() - now) * 1000 - decoded.decode_ms
        self._last = (decoded, requests) if requests else None
        return decoded

    def _keep(self, decoded: Decoded, now: float) -> None:
        wall = (now - self._began) * 1000
        self._rounds.append(
            SteadyRound(
                rows=len(decoded.round.rows),
                tokens=sum(len(walk.tokens) for walk in decoded.walks if walk is not None),
                wall=wall,
                decode=decoded.decode_ms,
                step=max((drafter.step_ms for drafter in self._drafters), default=0.0),
                **self._spent,
            )
        )

    def plan(self, *arguments: Any, **options: Any) -> Round:
        """Plan; between a plan that waits and the next one the time is a wait."""
        began = self._clock()
        if self._waiting is not None:
            self._spent["wait"] += (began - self._waiting) * 1000
            self._waiting = None
        round = self._plan(*arguments, **options)
        ended = self._clock()
        self._spent["plan"] += (ended - began) * 1000
        if not len(round.rows):
            self._waiting = ended
        return round

    def drop(self, *arguments: Any) -> None:
        """A request ends: keep the lines."""
        self._drop(*arguments)
        with self._record.open("ab") as file:
            file.writelines(msgspec.json.encode(one) + b"\n" for one in self._rounds)
        self._rounds, self._last, self._waiting = [], None, None

    def _timed(self, phase: str, method: Callable[..., Result]) -> Callable[..., Result]:
        def timed(*arguments: Any) -> Result:
            began = self._clock()
            try:
                return method(*arguments)
            finally:
                if self._waiting is None:
                    self._spent[phase] += (self._clock() - began) * 1000

        return timed


class RecordReader:
    """Reads a record that a `Watch` appends to."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._at = 0

    def fresh(self) -> list[SteadyRound]:
        """What was appended since the last call."""
        if not self._record.exists():
            return []
        with self._record.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        return [msgspec.json.decode(line, type=SteadyRound) for line in data.splitlines()]
