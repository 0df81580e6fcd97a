"""One run: clients ask, faults strike, everybody is asked to end, and what was seen is judged."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.client import STUCK_S, Clients
from tests.chaos.faults import schedule, strike
from tests.chaos.fleet import START_S, Fleet
from tests.chaos.questions import questions, references
from tests.chaos.records import Ending, Fault, Kind, Request
from tests.chaos.verdict import deaths, faulty

_SETTLED_S: Final = 15.0  # after the last request: for jobs that nobody reads, whose cancel was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run. A plan and its seed give the same questions, choices and faults; the timing is the machine's."""

    target: Path
    draft: Path  # another quantisation of the target
    seconds: float  # of faults, and until every kind has struck
    seed: int
    clients: int = 20
    questions: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run saw. `violations` are one line each; none if all promises held."""

    requests: list[Request]
    faults: list[Fault]
    zombies: int  # requests that a woken verifier wanted to go on with and was refused
    violations: list[str]


async def run(plan: Plan, folder: Path, tell: Callable[[str], object]) -> Seen:
    """Run the plan with logs in `folder`; `tell` gets a line now and then."""
    asked = questions(plan.questions, plan.seed)
    tell("computing the right answers")
    right = await asyncio.to_thread(references, plan.target, asked)
    tell("starting the fleet")
    async with Fleet(plan.target, plan.draft, folder, slots=plan.clients) as fleet:
        clients = Clients(fleet.gateways, asked, plan.clients, plan.seed)
        asking = asyncio.create_task(clients.run())
        try:
            faults = await _trouble(fleet, plan, tell, asking)
            clients.stop()
            tell("waiting for the last answers")
            await asyncio.wait_for(asking, STUCK_S + 10)
        finally:
            asking.cancel()
        violations = faulty(clients.requests, faults, right) + await _aftermath(fleet, tell)
    violations += [f"{fault.kind} of {fault.target}: {fault.note}" for fault in faults if "TOO LATE" in fault.note]
    for service in fleet.services.values():
        violations += deaths(service.unasked, faults)
    if not any(request.ending is Ending.FINISHED for request in clients.requests):
        violations.append("nothing was answered")
    zombies = sum(service.said("request_lost", outcome="stale") for service in fleet.of_kind("verifier"))
    return Seen(requests=clients.requests, faults=faults, zombies=zombies, violations=violations)


async def _trouble(
    fleet: Fleet, plan: Plan, tell: Callable[[str], object], asking: "asyncio.Task[None]"
) -> list[Fault]:
    clock = asyncio.get_running_loop().time
    end = clock() + plan.seconds
    faults: list[Fault] = []
    for number, (kind, peace_s) in enumerate(schedule(plan.seed)):
        await asyncio.sleep(peace_s)
        struck = {fault.kind for fault in faults}
        if (clock() >= end and struck == set(Kind)) or asking.done():
            return faults
        fault = await strike(kind, fleet, random.Random(f"{plan.seed}-{number}"))
        faults.append(fault)
        tell(f"{kind}: {fault.target} {fault.note}")
    raise AssertionError("a schedule has no end")


async def _aftermath(fleet: Fleet, tell: Callable[[str], object]) -> list[str]:
    """What is wrong once nobody asks any more: somebody missing, something left over, somebody who does not end."""
    tell("looking for what is left")
    violations = []
    if not await fleet.until(fleet.whole, START_S):
        violations.append("not every service came back")

    async def settled() -> bool:
        return not await fleet.left_over()

    if not await fleet.until(settled, _SETTLED_S):
        violations += await fleet.left_over()
    tell("ending everything")
    return violations + await fleet.end_all()
