"""What is told of a fleet in its network, and what is made of what strangers tell."""

import pytest

from services.launcher.fleet import beacon
from services.launcher.fleet.beacon import MulticastUnavailable, _plain
from services.launcher.fleet.fleet_notice import AnnouncedFleet


async def test_where_multicast_is_missing_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(beacon, "AsyncZeroconf", broken)
    with pytest.raises(MulticastUnavailable, match="No such device"):
        async with beacon.announced(AnnouncedFleet("here", "192.0.2.1", 7072)):
            pytest.fail("nothing can be announced")
    with pytest.raises(MulticastUnavailable, match="No such device"):
        await beacon.search(0.0)


def test_a_stranger_s_words_cannot_steer_a_terminal() -> None:
    assert _plain("\x1b[2Jmodel\n") == "?[2Jmodel?"
    assert len(_plain("x" * 5000)) == 200


def test_a_fleet_says_where_it_is() -> None:
    fleet = AnnouncedFleet("draftmesh on box", "fd00::1", 7072, model="m")
    assert str(fleet) == "draftmesh on box serves m, Redis at [fd00::1]:7072"
    assert fleet.url() == "redis://[fd00::1]:7072/0"
