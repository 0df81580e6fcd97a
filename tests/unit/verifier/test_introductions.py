"""Which drafters are refused whatever they guess: those that flood, and too many of one machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.verifier import introductions
from services.verifier.drafters import Drafters
from services.verifier.introductions import FLOOD_S, Introductions
from shared.wire.messages import DrafterCard
from tests.toys import drafter_card


class Roster:
    """A registry with the cards that a test puts into it."""

    def __init__(self, *names: str) -> None:
        self.cards = [drafter_card(name) for name in names]

    async def list(self) -> list[DrafterCard]:
        return self.cards


@pytest.fixture
def now() -> list[float]:
    return [0.0]


def met(roster: Roster, now: list[float], monkeypatch: pytest.MonkeyPatch) -> Introductions:
    monkeypatch.setattr(introductions, "target_keeper", lambda registry, path, template: None)
    vocabulary = SimpleNamespace(texts=lambda: [b"a"])
    return Introductions(cast(Any, roster), cast(Any, vocabulary), Path("model"), lambda: now[0])


async def test_a_drafter_that_floods_is_refused_for_a_while(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    one, drafters = met(Roster("d", "e"), now, monkeypatch), Drafters()
    assert await one.meet(drafters) == ({"d", "e"}, set())
    one.flooded("d")
    assert one.refuses("d")
    assert not one.refuses("e")
    assert await one.meet(drafters) == (set(), {"d"})
    assert drafters.refused == {"d": "it sends more than it was asked for"}
    now[0] = FLOOD_S
    assert await one.meet(drafters) == ({"d"}, set())


async def test_one_machine_has_eight_drafters_and_others_have_theirs(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*(f"drafter-laptop@{index:02}" for index in range(20)), "drafter-desk@1", "drafter-a", "drafter-b"]
    one, drafters = met(Roster(*names), now, monkeypatch), Drafters()
    joined, _ = await one.meet(drafters)
    assert joined == {*names[:8], *names[20:]}
    assert set(drafters.refused.values()) == {"more than 8 drafters of one machine"}


def test_what_a_drafter_may_send_grows_with_what_it_is_asked(now: list[float]) -> None:
    drafters = Drafters()
    drafters.update([drafter_card("d")])
    drafter = drafters["d"]
    assert drafter.sent(256 << 10)  # at once
    assert not drafter.sent(1)
    drafters.update([])
    drafters.update([drafter_card("d")])
    drafter = drafters["d"]
    for _ in range(10_000):  # an honest drafter, that answers each hint with ten messages of two hundred bytes
        drafter.was_asked()
        assert drafter.sent(10 * (512 + 200))
    for _ in range(1000):
        drafter.was_asked()
    assert drafter.sent(1 << 20)  # no more than that is saved up
    assert not drafter.sent(1)
