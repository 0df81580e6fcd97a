"""When Redis has room for more requests."""

import asyncio
from typing import Any, cast

import pytest
from redis.exceptions import NoPermissionError

from services.gateway.storage.headroom import Headroom
from shared.wire.commands import Redis


class Server:
    """A server whose memory is set by hand."""

    def __init__(self, used: int, limit: int) -> None:
        self.memory: dict[str, Any] = {"used_memory": used, "maxmemory": limit}
        self.asked = 0

    async def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        self.asked += 1
        return self.memory


async def test_there_is_room_below_nine_tenths_of_the_memory() -> None:
    for used, limit, left in ((89, 100, True), (90, 100, False), (200, 100, False), (10**12, 0, True)):
        assert await Headroom(cast(Redis, Server(used, limit))).left() is left


async def test_the_server_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    server = Server(0, 100)
    headroom = Headroom(cast(Redis, server))
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        assert [await headroom.left() for _ in range(3)] == [True] * 3
        server.memory["used_memory"] = 99
        now = 5.9
        assert await headroom.left()
        assert server.asked == 1
        now = 6.0
        assert not await headroom.left()
    assert server.asked == 2


async def test_a_server_that_does_not_tell_changes_nothing() -> None:
    class Silent(Server):
        async def info(self, section: str) -> dict[str, Any]:
            raise NoPermissionError("no permissions to run the 'info' command")

    assert await Headroom(cast(Redis, Silent(99, 100))).left()
