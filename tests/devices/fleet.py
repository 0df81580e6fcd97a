"""A fleet over both devices, by the services' own commands, and what it answered with and without drafts."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.wire.messages import Card, DrafterCard, Sampling, Speculation, VerifierCard
from tests.devices.driver import DEVICE
from tests.devices.places import CTX, PLACES, Place
from tests.stack import Answer, Processes, client

TOKENS: Final = 10
LAWS: Final = (Sampling(seed=5, temperature=0.0), Sampling(seed=5, temperature=1.0))
DRAFT_DEVICES: Final = ("cpu", DEVICE)  # one after the other: an answer's drafts then come from one device
_START_S: Final = 300.0  # on a busy machine; a driver compiles shaders first


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: the model of a place, which device drafted (empty: none), and which law."""

    place: Place
    drafts: str
    law: int


@dataclass(slots=True)
class Record:
    """What was seen of a fleet."""

    verifiers: dict[str, VerifierCard] = field(default_factory=dict)  # by model
    drafters: dict[str, DrafterCard] = field(default_factory=dict)  # by device
    answers: dict[Asked, Answer] = field(default_factory=dict)


async def record(
    url: str, variables: Mapping[str, str], models: Mapping[str, Path], prompt: list[int], folder: Path
) -> Record:
    """Start a verifier for each place, ask it plainly, then beside a drafter on each device."""
    found = Record()
    processes = Processes(url, variables)
    try:
        for place in PLACES:
            options = ["--target-model", str(models[place.name]), *place.options()]
            start(processes, folder / place.name, "verifier", *options)
        for card in await cards(url, models, len(PLACES)):
            if isinstance(card, VerifierCard):
                found.verifiers[card.model] = card
        await _ask(found, url, models, prompt, "")
        for device in DRAFT_DEVICES:
            options = ["--draft-model", str(models["draft"]), "--draft-device", device, "--threads", "1"]
            drafter = start(processes, folder / device, "drafter", *options, "--ctx", str(CTX), "--parallel", "4")
            for card in await cards(url, models, len(PLACES) + 1):
                if isinstance(card, DrafterCard):
                    found.drafters[device] = card
            await _ask(found, url, models, prompt, device)
            drafter.terminate()
            await asyncio.to_thread(drafter.wait, 30)
    finally:
        processes.end()
    return found


def start(processes: Processes, log: Path, service: str, *options: str):  # type: ignore[no-untyped-def]
    """Start a service that says everything into a file."""
    with log.open("wb") as file:
        return processes.start(service, *options, "--log-level", "debug", log=file)


async def cards(url: str, models: Mapping[str, Path], wanted: int) -> list[Card]:
    """All cards as soon as there are so many."""
    async with client(url, models["draft"]) as one:
        return await one.cards(wanted, _START_S)


async def _ask(found: Record, url: str, models: Mapping[str, Path], prompt: list[int], drafts: str) -> None:
    """One question under each law of each place's model, all at once."""
    speculation = Speculation.ALWAYS if drafts else Speculation.OFF

    async def ask(place: Place, law: int) -> None:
        async with client(url, models[place.name]) as one:
            job = one.job(prompt, LAWS[law], TOKENS, speculation)
            found.answers[Asked(place, drafts, law)] = await one.ask(job)

    async with asyncio.TaskGroup() as group:
        for place in PLACES:
            for law in range(len(LAWS)):
                group.create_task(ask(place, law))
