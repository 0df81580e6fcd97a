"""What `draftmesh bench` asks: five kinds of work, each of them the same conversations for every server. Pure.

A conversation is a list of requests that are sent one after the other; all but `agent` have one. Each begins with a
unique line, so that no server has a prompt in its prefix cache from an earlier repetition or another run. Within an
agent's conversation the cache may hold the history that is sent again; that workload measures this.
"""

from enum import StrEnum
from typing import Final

from services.launcher.bench.agents import AGENTS, SYSTEM, Agent
from services.launcher.bench.edits import EDIT
from services.launcher.bench.prompts import CHAT, CODE, MATH

Messages = tuple[dict[str, str], ...]


class Workload(StrEnum):
    """A kind of work."""

    CHAT = "chat"
    CODE = "code"
    MATH = "math"
    EDIT = "edit"
    AGENT = "agent"


_QUESTIONS: Final = {Workload.CHAT: CHAT, Workload.CODE: CODE, Workload.MATH: MATH, Workload.EDIT: EDIT}


def prompts(workload: Workload) -> int:
    """How many different conversations a workload has."""
    return len(AGENTS) if workload is Workload.AGENT else len(_QUESTIONS[workload])


def conversation(workload: Workload, prompt: int, label: str) -> tuple[Messages, ...]:
    """The messages of each request in turn; `label` makes them unique."""
    heading = f"Reference {label}.\n\n"
    if workload is Workload.AGENT:
        return _agent(AGENTS[prompt], heading)
    return (({"role": "user", "content": heading + _QUESTIONS[workload][prompt]},),)


def _agent(agent: Agent, heading: str) -> tuple[Messages, ...]:
    messages: Messages = (
        {"role": "system", "content": heading + SYSTEM},
        {"role": "user", "content": agent.task},
    )
    requests = [messages]
    for said, result in agent.steps:
        messages += ({"role": "assistant", "content": said}, {"role": "user", "content": f"RESULT\n{result}"})
        requests.append(messages)
    return tuple(requests)
