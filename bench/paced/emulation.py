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
from bench.tasks import Task
from bench.versus.contest import OURS, Contestant, Ours, Runs, Work, compete, warm_up, warming, works
from bench.versus.ratios import alone
from bench.versus.results import CellResult, Finding, compared, of_the_ideal, over
from services.launcher.fleet.cores import Cores
from services.launcher.fleet.stack import Stack
from services.launcher.models.pair import Pair, default_model
from shared.wire.messages import VerifierCard

CTX: Final = 1024
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
    engine_cores: Cores
    side_cores: Cores
    repetitions: int
    texts: dict[str, str]
    tokens: int
    step: Callable[[str], object]

    async def run(self, scenario: Scenario) -> CellResult:
        """What is measured of a scenario."""
        asked = works(self.pair.draft_4bit, self.texts, self.tokens, scenario.temperatures)
        return await (self.trees(scenario, asked) if scenario.tree else self.shares(scenario, asked))

    def stack(self, scenario: Scenario, script: Path | None = None, *, max_rows: int = 0, trees: bool = True) -> Stack:
        """A fleet whose verifier is paced."""
        command = [sys.executable, "-m", "bench.paced.verifier", "--curve", str(scenario.curve)]
        command += ["--max-rows", str(max_rows), *([] if trees else ["--no-trees"])]
        command += ["--script", str(script)] if script else []
        target = default_model() if script else self.target
        cores, others = self.engine_cores, self.side_cores
        return Stack(target, engine_cores=cores, side_cores=others, ctx=CTX, commands={"verifier": command})

    async def shares(self, scenario: Scenario, asked: dict[float, list[Work]]) -> CellResult:
        """Decode share and fraction of the ideal at each temperature."""
        result = CellResult()
        with tempfile.TemporaryDirectory(prefix="draftmesh-paced-") as folder:
            script = Path(folder) / "script.json" if scenario.scripted else None
            if script is not None:
                script.write_text(json.dumps(self._script(asked)))
                self.step("recording")
            async with self.stack(scenario, script) as stack:
                result.findings.append(await self._plain_share(scenario, stack, asked))
                await stack.start_drafter(scenario.draft(self.pair))
                for temperature, some in asked.items():
                    ours = Ours(stack)
                    await warm_up([ours], some[0])
                    before = await stack.settled_card()
                    runs = await compete([ours], some, self.repetitions, self.step)
                    did = _between(before, await stack.settled_card())
                    result.findings += _shares(scenario, temperature, runs, did)
                    result.runs += runs.all
        return result

    async def _plain_share(self, scenario: Scenario, stack: Stack, works: dict[float, list[Work]]) -> Finding:
        """The decode share without drafts: what is missing is our software alone, with no wait for a drafter in it."""
        temperature, [work, *_] = next(iter(works.items()))
        plain = Ours(stack, speculative=False)
        await warm_up([plain], work)
        before = await stack.settled_card()
        await compete([plain], [work], 1, self.step)
        did = _between(before, await stack.settled_card())
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

    async def trees(self, scenario: Scenario, asked: dict[float, list[Work]]) -> CellResult:
        """A tree of drafts against a chain, both within `BUDGET` rows, in turn."""
        result = CellResult()
        async with AsyncExitStack() as open_stacks:
            contestants: list[Contestant] = []
            for name in (TREE, CHAIN):
                stack = self.stack(scenario, max_rows=BUDGET, trees=name == TREE)
                await open_stacks.enter_async_context(stack)
                await stack.start_drafter(scenario.draft(self.pair))
                contestants.append(Ours(stack, name=name))
            for temperature, some in asked.items():
                await warm_up(contestants, some[0])
                runs = await compete(contestants, some, self.repetitions, self.step)
                result.runs += runs.all
                result.findings.append(
                    compared(scenario.name, "tree of the same rows", temperature, runs, (TREE, CHAIN), TREE_WANTED)
                )
        return result


def _shares(scenario: Scenario, temperature: float, runs: Runs, did: dict[str, int]) -> list[Finding]:
    speeds, plain = runs.speeds(OURS), 1000 / scenario.curve(1)
    findings = [
        _alone(scenario, "decode share", temperature, did["decode_us"] / did["busy_us"], wanted=scenario.share),
        _alone(scenario, "decode time over the curve's", temperature, did["decode_us"] / _expected_us(scenario, did)),
        over(scenario.name, "times plain decoding on the curve", temperature, speeds, plain),
    ]
    if rounds := runs.rounds(OURS):
        findings.append(of_the_ideal(scenario.name, temperature, speeds, rounds, scenario.curve))
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
    return Finding(cell=scenario.name, what=what, temperature=temperature, ratio=alone(value), wanted=wanted)
