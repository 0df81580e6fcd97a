"""What every cell gets: the files, the cores, the peers, how much to measure, and where to tell of progress."""

import statistics
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from bench.versus.as_typed import Typed
from bench.versus.contest import Contestant, Runs, Theirs, Work, compete, do, warm_up
from bench.versus.peers import Binaries, PeerEngine, PeerServer, PeerSetting
from bench.versus.ratios import best
from services.launcher.fleet.cores import Cores
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair

CTX: Final = 1024
CACHE: Final = "cache"  # of our fleets that are started as a user would, in the folder of logs, for one run
AUDITION_TOKENS: Final = 32  # of every answer
AUDITION_PROMPTS: Final = 2
_IN_THE_RUNNING: Final = 0.85  # of the fastest: an audition says no more than that


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of the whole run."""

    pair: Pair
    default_model: Path
    binaries: Binaries
    engine_cores: Cores
    side_cores: Cores
    repetitions: int
    prompts: int
    tokens: int
    quick: bool
    step: Callable[[str], object]
    logs: Path  # a folder for what peers say
    _numbers: "count[int]" = field(default_factory=count)

    def stack(self, target: Path, **options: object) -> Stack:
        """Our fleet for `target`, one core for the verifier and one for everything else."""
        options = {"ctx": CTX, "fresh": True, **options}
        return Stack(target, engine_cores=self.engine_cores, side_cores=self.side_cores, **options)  # type: ignore[arg-type]

    @property
    def cores(self) -> Cores:
        """All cores that anybody uses here."""
        return sorted({*self.engine_cores, *self.side_cores})

    def typed(self, target: Path, draft: Path | None) -> Typed:
        """Our fleet as `draftmesh up` makes it, on all cores."""
        log = self.logs / f"{next(self._numbers):03d}-up.log"
        return Typed(target, draft, ctx=CTX, cores=self.cores, log=log, cache=self.logs / CACHE)

    def peer(self, setting: PeerSetting, target: Path, *, ctx: int = CTX, slots: int = 1) -> PeerServer:
        """A peer's server on both cores."""
        return PeerServer(
            setting,
            self.binaries,
            target=target,
            ctx=ctx,
            slots=slots,
            cores=self.cores,
            log=self.logs / f"{next(self._numbers):03d}-{setting.name.replace(' ', '-')}.log",
        )

    async def audition(
        self, settings: Sequence[PeerSetting], target: Path, works: Mapping[float, Sequence[Work]], *, slots: int = 1
    ) -> dict[float, dict[PeerSetting, float]]:
        """Mean tokens per second of each setting over the works of each temperature; one server at a time."""
        found: dict[float, dict[PeerSetting, float]] = {temperature: {} for temperature in works}
        for setting in settings:
            async with self.peer(setting, target, slots=slots) as server:
                self.step(f"choosing: {setting.name}")
                contestant = Theirs(server)
                if slots > 1:  # decode speed of one request begins after the prefill, which warms up
                    await warm_up([contestant], next(iter(works.values()))[0])
                for temperature, some in works.items():
                    # At temperature 0 probabilistic drafts are what the others are.
                    if temperature > 0 or not setting.probabilistic:
                        runs = [await do(contestant, work, 0) for work in some]
                        found[temperature][setting] = statistics.fmean(run.tokens_per_second for run in runs)
        return found

    @asynccontextmanager
    async def opponents(
        self, settings: Sequence[PeerSetting], target: Path, *, ctx: int = CTX, slots: int = 1
    ) -> AsyncIterator[list[Theirs]]:
        """Servers for these settings, side by side; they map the same file, and idle ones sleep."""
        async with AsyncExitStack() as open_servers:
            yield [
                Theirs(await open_servers.enter_async_context(self.peer(setting, target, ctx=ctx, slots=slots)))
                for setting in settings
            ]


async def meet(setup: Setup, contestants: Sequence[Contestant], works: Sequence[Work], each: int = 0) -> Runs:
    """A contest of `each` works a repetition, or of all of them, after a warm-up."""
    await warm_up(contestants, works[0])
    return await compete(contestants, works, setup.repetitions, setup.step, each)


def winners(auditions: Mapping[PeerSetting, float]) -> list[PeerSetting]:
    """The fastest setting of each engine, without those that are clearly slower than the fastest of all."""
    chosen = []
    for engine in PeerEngine:
        mine = {setting.name: setting for setting in auditions if setting.engine is engine}
        if mine:
            chosen.append(mine[best({name: [auditions[setting]] for name, setting in mine.items()})])
    fastest = max((auditions[setting] for setting in chosen), default=0.0)
    return [setting for setting in chosen if auditions[setting] >= _IN_THE_RUNNING * fastest]


def opponent(runs: Runs, names: Sequence[str]) -> str:
    """Whoever was fastest in the contest itself."""
    return best({name: runs.speeds(name).values() for name in names})
