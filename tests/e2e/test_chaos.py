"""A minute of `make chaos`: every kind of fault on real processes, and nothing lost, doubled, stuck or left over."""

from pathlib import Path

import pytest

from tests.chaos.records import Ending, Kind
from tests.chaos.report import summary
from tests.chaos.run import Plan, run

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


async def test_a_minute_of_every_fault_breaks_no_promise(
    model_path: Path, drafts: dict[str, Path], tmp_path: Path
) -> None:
    plan = Plan(target=model_path, draft=drafts["Q8_0"], seconds=80, seed=3, clients=8, questions=8)
    seen = await run(plan, tmp_path, print)
    print(summary(seen))
    assert seen.violations == []
    assert {fault.kind for fault in seen.faults} == set(Kind)
    assert sum(request.ending is Ending.FINISHED for request in seen.requests) > 10
