"""Tries a client against a gateway, in a home and a folder of its own."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clients.installs import Installed
from clients.results import Verdict
from clients.running import Done, run
from clients.trials import Place, Task
from services.launcher.fleet.stack import Stack
from shared.fleet.registry import HEARTBEAT_S

_HEARD_S: Final = 1.5 * HEARTBEAT_S  # by then the verifier's card tells of what is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where trials are made: a running fleet, and a folder for homes and logs."""

    stack: Stack
    model: str
    folder: Path
    timeout_s: float

    async def opening(self) -> int:
        """Tokens of all prompts so far."""
        await asyncio.sleep(_HEARD_S)
        card = await self.stack.verifier_card()
        return card.counters.get("prompt_tokens", 0) if card else 0

    async def attempt(self, name: str, task: Task, installed: Installed) -> Verdict:
        """Run the task once, from nothing; what it printed is kept in the folder."""
        place = self._place(name, task, installed)
        done = await run(
            task.command(place),
            environment={**_environment(place), **task.environment},
            folder=place.work,
            timeout_s=self.timeout_s,
        )
        (self.folder / "logs" / f"{name}.txt").write_text(
            f"{done.output}\n--- standard error\n{done.errors}\n--- {done.status} after {done.seconds:.1f} s\n"
        )
        return judge(task, done, place.work, self.timeout_s)

    def _place(self, name: str, task: Task, installed: Installed) -> Place:
        home, work = (self.folder / part / name for part in ("homes", "work"))
        for folder in (home, work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for file, content in task.files.items():
            (work / file).write_text(content)
        (self.folder / "logs").mkdir(exist_ok=True)
        return Place(url=self.stack.url, model=self.model, home=home, work=work, programs=installed.programs)


def judge(task: Task, done: Done, work: Path, timeout_s: float) -> Verdict:
    """Whether the task was done, from what the client printed and wrote."""
    if done.status is None:
        return Verdict(False, f"not finished after {timeout_s:.0f} s")
    if done.status != 0:
        return Verdict(False, f"exit status {done.status}: {_complaint(done)}")
    if task.shows not in done.output or not done.output.strip():
        return Verdict(False, f"the answer is missing: {_complaint(done)}")
    if task.writes is not None:
        file, content = task.writes
        if not (work / file).is_file() or (work / file).read_text() != content:
            return Verdict(False, f"{file} is not as it should be")
    return Verdict(True)


def _complaint(done: Done) -> str:
    """The last line that speaks of an error, or else the last line."""
    lines = [line.strip() for line in f"{done.output}\n{done.errors}".splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]


def _environment(place: Place) -> dict[str, str]:
    """Nothing of the user's but where programs are."""
    node = shutil.which("node")
    paths = [str(place.programs), *([str(Path(node).parent)] if node else []), "/usr/bin", "/bin"]
    environment = {
        "HOME": str(place.home),
        "PATH": os.pathsep.join(paths),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "LLM_USER_PATH": str(place.home / "llm"),
    }
    if "PYTHONPATH" in os.environ:  # where draftmesh is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return environment
