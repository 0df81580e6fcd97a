"""What becomes of requests whose model has no verifier: they wait as long as they may, visibly, and no longer."""

from collections import Counter
from typing import Any, cast

from redis.exceptions import ConnectionError as Disconnected

from services.gateway.errors import ApiError
from services.gateway.generation.generator import Generator
from services.gateway.generation.lost_models import LostModels
from services.gateway.models.directory import ModelDirectory
from shared.fleet.registry import Registry
from shared.wire.messages import Card, Deserted
from tests.service.scripted import card

GRACE_S = 30.0


class Cards:
    """The registry, as the test sets it."""

    def __init__(self, *cards: Card) -> None:
        self.living = list(cards)
        self.away = False
        self.asked = 0

    async def list(self) -> list[Card]:
        self.asked += 1
        if self.away:
            raise Disconnected
        return self.living


class Answers:
    """The requests that run, by model, and how they were ended."""

    def __init__(self, **live: int) -> None:
        self.counts = Counter(live)
        self.ended: dict[str, ApiError] = {}

    def live(self) -> Counter[str]:
        return self.counts

    def desert(self, model: str, error: ApiError) -> None:
        self.ended[model] = error
        del self.counts[model]


class World:
    """One gateway's watch with its clock in the test's hands."""

    def __init__(self, cards: Cards, **live: int) -> None:
        self.cards = cards
        self.answers = Answers(**live)
        self.now = 0.0
        directory = ModelDirectory(cast(Registry, cards), fresh_s=0.0)
        generator = cast(Generator, cast(Any, self.answers))
        self.lost_models = LostModels(directory, generator, GRACE_S, clock=lambda: self.now)

    async def look(self, now: float) -> None:
        self.now = now
        await self.lost_models.look()


async def test_requests_wait_for_the_grace_and_end_with_what_is_served_instead() -> None:
    world = World(Cards(card(model="small")), big=2, small=1)
    await world.look(100)
    await world.look(129.9)
    assert not world.answers.ended
    assert world.lost_models.deserted == (
        Deserted(model="big", requests=2, reason="its last verifier is gone; they end in 0 seconds unless one comes"),
    )
    await world.look(130)
    [(model, error)] = world.answers.ended.items()
    assert (model, error.status, error.code) == ("big", 503, "model_not_served")
    assert "none came within 30 seconds. Served instead: small." in error.message
    assert not world.lost_models.deserted
    await world.look(131)
    assert not world.lost_models._since


async def test_a_verifier_that_comes_back_stops_the_clock() -> None:
    world = World(Cards(), big=1)
    await world.look(0)
    await world.look(29)
    world.cards.living = [card(model="big")]
    await world.look(30)
    assert not world.lost_models.deserted
    world.cards.living = []
    await world.look(31)
    await world.look(60.9)
    assert not world.answers.ended
    await world.look(61)
    assert list(world.answers.ended) == ["big"]


async def test_a_verifier_that_drains_is_still_there_for_what_it_serves() -> None:
    world = World(Cards(card(model="big", draining=True)), big=1)
    for now in (0, 100):
        await world.look(now)
    assert not world.lost_models.deserted
    assert not world.answers.ended


async def test_while_redis_is_away_nobody_s_time_runs() -> None:
    world = World(Cards(), big=1)
    await world.look(0)
    world.cards.away = True
    await world.look(20)
    await world.look(50)
    world.cards.away = False
    await world.look(51)
    assert not world.answers.ended
    await world.look(81)
    assert list(world.answers.ended) == ["big"]


async def test_a_gateway_without_requests_asks_nobody() -> None:
    world = World(Cards())
    await world.look(1)
    assert not world.cards.asked
