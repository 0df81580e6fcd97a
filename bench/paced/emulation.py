"""Emulated targets: which there are, and what is measured of draftmesh around each."""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.paced.target import Curve
from bench.tasks import Author, Task
from bench.versus.contest import Contestant, Ours, Runs, Work, compete
from bench.versus.ratios import RatioSpread, ideal_tokens_per_second, mean, ratio
from bench.versus.results import CellResult, Finding
from bench.versus.setup import warm_up, warming
from bench.versus.speed import counters
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair, default_model
from shared.wire.messages import VerifierCard

CTX: Final = 1024
IDEAL_WANTED: Final = 0.92
TREE_WANTED: Final = 1.10
BUDGET: Final = 16  # rows that tree and chain may both use
TREE, CHAIN = "tree", "chain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One emulated target. `share` is the decode share that is wanted."""

    name: str
    what: str
    curve: Curve
    draft: Callable[[Pair], Path]
    temperatures: tuple[float, ...] = (0.0, 1.0)
    scripted: bool = False
    share: float = 0.0
    tree: bool = False


SCENARIOS: Final = (
    Scenario(
        name="70b",
        what="emulated 70B class over several cards, 100 ms + 3 ms per row, 8-bit draft",
        curve=Curve(100, 3),
        draft=lambda pair: pair.draft_8bit,
        share=0.97,
    ),
    Scenario(
        name="27b",
        what="emulated 27B on one card, 26 ms + 1 ms per row, replayed logits, 8-bit draft",
        curve=Curve(26, 1),
        draft=lambda pair: pair.draft_8bit,
        scripted=True,
        share=0.93,
    ),
    Scenario(
        name="tree",
        what=f"emulated, 100 ms + 3 ms per row, {BUDGET} rows, 4-bit draft: a tree against a chain",
        curve=Curve(100, 3),
        draft=lambda pair: pair.draft_4bit,
        temperatures=(1.0,),
        tree=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """Runs scenarios."""

    pair: Pair
    target: Path  # of the scenarios that compute
    repetitions: int
    texts: dict[str, str]
    tokens: int
    step: Callable[[str], object]

    def works(self, scenario: Scenario) -> dict[float, list[Work]]:
        author = Author(self.pair.draft_4bit)
        works: dict[float, list[Work]] = {
            temperature: [(task,) for task in author.tasks(self.texts, temperature=temperature, tokens=self.tokens)]
            for temperature in scenario.temperatures
        }
        author.close()
        return works

    def stack(self, scenario: Scenario, script: Path | None = None, *, max_rows: int = 0, trees: bool = True) -> Stack:
        """A fleet whose verifier is paced."""
        engine, side = (half[:1] for half in halves())
        command = [sys.executable, "-m", "bench.paced.verifier", "--curve", str(scenario.curve)]
        command += ["--max-rows", str(max_rows), *([] if trees else ["--no-trees"])]
        command += ["--script", str(script)] if script else []
        return Stack(
            default_model() if script else self.target, engine_cores=engine, side_cores=side, ctx=CTX, verifier=command
        )

    async def shares(self, scenario: Scenario) -> CellResult:
        """Decode share and fraction of the ideal at each temperature."""
        works = self.works(scenario)
        result = CellResult()
        with tempfile.TemporaryDirectory(prefix="draftmesh-paced-") as folder:
            script = Path(folder) / "script.json" if scenario.scripted else None
            if script is not None:
                script.write_text(json.dumps(self._script(works)))
                self.step("recording")
            async with self.stack(scenario, script) as stack:
                result.findings.append(await self._plain_share(scenario, stack, works))
                await stack.start_drafter(scenario.draft(self.pair))
                for temperature, some in works.items():
                    ours = Ours(stack)
                    await warm_up(ours, some[0])
                    runs = Runs()
                    before = await counters(stack)
                    await compete([ours], some, self.repetitions, self.step, runs)
                    after = await counters(stack)
                    result.findings += _shares(scenario, temperature, runs, before, after)
                    result.runs += runs.all
        return result

    async def _plain_share(self, scenario: Scenario, stack: Stack, works: dict[float, list[Work]]) -> Finding:
        """The decode share without drafts: what is missing is our software alone, with no wait for a drafter in it."""
        temperature, [work, *_] = next(iter(works.items()))
        plain = Ours(stack, speculative=False)
        await warm_up(plain, work)
        before = await counters(stack)
        await compete([plain], [work], 1, self.step, Runs())
        did = _between(before, await counters(stack))
        return _alone(scenario, "decode share, plain", temperature, did["decode_us"] / did["busy_us"])

    def _script(self, works: dict[float, list[Work]]) -> list[dict[str, object]]:
        """Everything that will be asked, warm-ups included."""
        asked: list[Task] = []
        for some in works.values():
            asked += [
                task.seeded(repetition) for work in some for task in work for repetition in range(self.repetitions)
            ]
            asked.append(warming(some[0]))
        return [
            {"prompt": task.prompt, "seed": task.seed, "temperature": task.temperature, "tokens": task.tokens}
            for task in asked
        ]

    async def trees(self, scenario: Scenario) -> CellResult:
        """A tree of drafts against a chain, both within `BUDGET` rows, in turn."""
        result = CellResult()
        async with AsyncExitStack() as open_stacks:
            contestants: list[Contestant] = []
            for name in (TREE, CHAIN):
                stack = self.stack(scenario, max_rows=BUDGET, trees=name == TREE)
                await open_stacks.enter_async_context(stack)
                await stack.start_drafter(scenario.draft(self.pair))
                contestants.append(Ours(stack, name=name))
            for temperature, some in self.works(scenario).items():
                runs = Runs()
                for contestant in contestants:
                    await warm_up(contestant, some[0])
                await compete(contestants, some, self.repetitions, self.step, runs)
                result.runs += runs.all
                result.findings.append(
                    Finding(
                        cell=scenario.name,
                        what="tree of the same rows",
                        temperature=temperature,
                        ours=mean(runs.speeds(TREE)),
                        theirs=mean(runs.speeds(CHAIN)),
                        opponent=CHAIN,
                        ratio=ratio(runs.speeds(TREE), runs.speeds(CHAIN)),
                        wanted=TREE_WANTED,
                    )
                )
        return result


def _shares(
    scenario: Scenario, temperature: float, runs: Runs, before: VerifierCard, after: VerifierCard
) -> list[Finding]:
    name = runs.all[0].name
    speeds = runs.speeds(name)
    did = _between(before, after)
    plain = 1000 / scenario.curve(1)
    findings = [
        _alone(scenario, "decode share", temperature, did["decode_us"] / did["busy_us"], wanted=scenario.share),
        _alone(scenario, "decode time over the curve's", temperature, did["decode_us"] / _expected_us(scenario, did)),
        Finding(
            cell=scenario.name,
            what="times plain decoding on the curve",
            temperature=temperature,
            ours=mean(speeds),
            theirs=RatioSpread(value=plain, low=plain, high=plain),
            ratio=mean({key: speed / plain for key, speed in speeds.items()}),
        ),
    ]
    if rounds := runs.rounds(name):
        ideal = ideal_tokens_per_second(rounds, scenario.curve)
        findings.append(
            Finding(
                cell=scenario.name,
                what="of the ideal E/v(rows)",
                temperature=temperature,
                ours=mean(speeds),
                theirs=RatioSpread(value=ideal, low=ideal, high=ideal),
                opponent=f"{rounds.tokens_per_round:.2f} tokens on {rounds.rows_per_round:.1f} rows",
                ratio=mean({key: speed / ideal for key, speed in speeds.items()}),
                wanted=IDEAL_WANTED,
            )
        )
    return findings


def _between(before: VerifierCard, after: VerifierCard) -> dict[str, int]:
    return {name: after.counters[name] - before.counters[name] for name in after.counters}


def _expected_us(scenario: Scenario, did: dict[str, int]) -> float:
    """The curve's time for all these decodes; as it is linear, their number and their rows say everything.

    A prompt's last row is the first round's, so it is counted once.
    """
    prefill = did["prompt_tokens"] - did["cached_tokens"] - did["requests"]
    rows = prefill + did["rounds"] + did["draft_tokens"] + did["padding_rows"]
    return 1000 * (scenario.curve.base_ms * did["decodes"] + scenario.curve.row_ms * rows)


def _alone(scenario: Scenario, what: str, temperature: float, value: float, wanted: float | None = None) -> Finding:
    return Finding(
        cell=scenario.name,
        what=what,
        temperature=temperature,
        ratio=RatioSpread(value=value, low=value, high=value),
        wanted=wanted,
    )
