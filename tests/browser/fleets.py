"""Fleets to look at: cards that are kept alive, and answers that drafters had a part in."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace
from playwright.async_api import Page, expect

from shared.fleet.registry import HEARTBEAT_S
from shared.model.llama.model import Model
from shared.wire.messages import Card, Chunk, DrafterCounts, Finish, RequestStatus, TokenLogprob, VerifierCard
from tests.service.scripted import Script, Stack, Step, card, stack
from tests.toys import drafter_card

DRAFTER: Final = "drafter-a"
VERIFIER: Final = card(
    row_ms=((1, 24.0), (8, 29.0)),
    tokens_per_second=43.2,
    plain_tokens_per_second=18.0,
    speedup=2.4,
    tokens_per_round=2.9,
    cells=8192,
    cells_used=5100,
    cells_running=1200,
    drafters=(DrafterCounts(drafter=DRAFTER, drafted=900, accepted=710, rounds=240, stale=3, added=420, asked=300),),
    requests=(
        RequestStatus(
            request_id="5f0c2a7b", offset=212, tokens_per_round=2.9, drafters=(DRAFTER,), tokens_per_second=44.0
        ),
        RequestStatus(request_id="a91be77c", offset=31, tokens_per_round=1.0, reason="no draft was ready in time"),
    ),
)
QUIET: Final = card(cells=8192)


def helper(name: str = DRAFTER, **changes: Any) -> Card:
    """A drafter's card."""
    return replace(drafter_card(name), **{"model": "small-Q8_0", "device": "cuda:1", **changes})


@asynccontextmanager
async def fleet(
    url: str,
    vocabulary: bytes,
    script: Script = lambda _: [],
    *,
    verifier: VerifierCard = QUIET,
    others: Sequence[Card] = (),
    **settings: Any,
) -> AsyncIterator[Stack]:
    """A scripted stack whose cards do not expire."""
    async with stack(url, vocabulary, script, cards=[verifier], **settings) as s:
        [own] = [one for one in await s.registry.list() if isinstance(one, VerifierCard)]
        for other in others:
            await s.registry.beat(other)
        living = [own, *others]

        async def beat() -> None:
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                for one in living:
                    await s.registry.beat(one)

        beating = asyncio.create_task(beat())
        try:
            yield s
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating


def guessed(model: Model, text: str, *, gate: asyncio.Event | None = None) -> list[Step]:
    """The text in rounds of three tokens, two of them guessed by the drafter and the third its refusal.

    At a gate the answer waits after its first round.
    """
    tokens = model.vocabulary.tokenize(text)
    rounds = [tuple(tokens[start : start + 3]) for start in range(0, len(tokens), 3)]
    steps: list[Step] = []
    for number, part in enumerate(rounds):
        steps.append(
            Chunk(
                tokens=part,
                sources=(DRAFTER, DRAFTER, "")[: len(part)],
                drafted=4,
                accepted=min(2, len(part)),
                tried=3,
                logprobs=tuple(TokenLogprob(logprob=-0.25) for _ in part),
                finish=Finish.LENGTH if number == len(rounds) - 1 else Finish.NONE,
            )
        )
        if gate is not None and number == 0:
            steps.append(gate)
    return steps


async def ready(page: Page, *models: str) -> None:
    """The page is connected and shows these models in its fleet."""
    await expect(page.locator("#connection")).to_have_text("connected")
    for model in models:
        await expect(page.locator("#fleet")).to_contain_text(model)


async def ask(page: Page, text: str) -> None:
    """Send a message."""
    await page.fill("#chat-text", text)
    await page.press("#chat-text", "Enter")
