"""Which drafters hold too much of Redis' memory."""

import pytest

from services.verifier.hoards import Hoards, drafter_of, excessive, user_of
from shared.wire import keys
from shared.wire.messages import MAX_NAME


def test_only_those_above_an_equal_share_hold_too_much() -> None:
    assert excessive({}, 100) == set()
    assert excessive({"a": 90, "b": 10}, 100) == set()  # together no more than is allowed
    assert excessive({"a": 91, "b": 10}, 100) == {"a"}
    assert excessive({"a": 60, "b": 50, "c": 20}, 100) == {"a", "b"}
    assert excessive({"a": 101}, 100) == {"a"}


def test_all_drafters_of_a_machine_are_one_user() -> None:
    assert user_of("drafter-laptop@1") == user_of("drafter-laptop@2x@3") == "drafter-laptop"
    assert user_of("drafter-1") == user_of("drafter-other") == "drafter"
    assert len(user_of("drafter-" + "x" * 10_000 + "@")) <= MAX_NAME


@pytest.mark.parametrize(
    "key",
    [keys.card("drafter-a@1"), keys.inbox("drafter-a@1"), keys.outbox("drafter-a@1", "verifier-1"),
     keys.draft_vocabulary("drafter-a@1", "d")],
)  # fmt: skip
def test_a_key_names_its_drafter(key: str) -> None:
    assert drafter_of(key.encode()) == "drafter-a@1"


@pytest.mark.parametrize(
    "key",
    [keys.card("verifier-1"), keys.job("r:drafter-1"), keys.response("caller", "drafter-1"), keys.drafters(), "drafter",
     keys.record("drafter-1", "resp_1"), keys.turn("drafter-1")],
)  # fmt: skip
def test_other_keys_name_none(key: str) -> None:
    assert drafter_of(key.encode()) == ""


class Server:
    """A Redis of 1,000 bytes, with the sizes of drafters' keys, that gives one key in a reply."""

    def __init__(self, used: int, sizes: dict[bytes, int]) -> None:
        self.used, self.sizes = used, sizes
        self.scans = 0
        self._names: list[bytes] = []
        self._asked: list[bytes] = []

    async def info(self, section: str) -> dict[str, int]:
        return {"used_memory": self.used, "maxmemory": 1000}

    async def scan(self, cursor: int, match: str, count: int) -> tuple[int, list[bytes]]:
        self.scans += 1
        if not cursor:
            self._names = sorted({*self.sizes, b"draftmesh:turn:drafter-x"})
        return (cursor + 1) % len(self._names), [self._names[cursor]]

    def pipeline(self, transaction: bool) -> "Server":
        self._asked = []
        return self

    def memory_usage(self, key: bytes, samples: int) -> None:
        self._asked.append(key)

    async def execute(self) -> list[int]:
        return [self.sizes[key] for key in self._asked]

    async def unlink(self, *gone: bytes) -> None:
        self.sizes = {key: size for key, size in self.sizes.items() if key not in gone}


HOARD = keys.outbox("drafter-bad@1", "x").encode()
HONEST = keys.card("drafter-good@1").encode()


async def test_a_hoard_is_deleted_and_its_owner_refused_for_a_minute() -> None:
    now = [0.0]
    server = Server(500, {HOARD: 240, HONEST: 11})
    hoards = Hoards(server, lambda: now[0])  # type: ignore[arg-type]
    await hoards.look()
    assert server.sizes == {HONEST: 11}
    assert hoards.refuses("drafter-bad@2")
    assert not hoards.refuses("drafter-good@1")
    server.sizes[HOARD] = 1  # for that minute it keeps nothing, also while Redis has plenty of memory
    server.used = 0
    now[0] = 59.0
    await hoards.look()
    assert server.sizes == {HONEST: 11}
    now[0] = 60.0
    assert not hoards.refuses("drafter-bad@2")


async def test_nothing_is_looked_through_while_redis_has_plenty_of_memory() -> None:
    server = Server(499, {HOARD: 400})
    hoards = Hoards(server, lambda: 0.0)  # type: ignore[arg-type]
    await hoards.look()
    assert server.scans == 0
    assert not hoards.refuses("drafter-bad@1")
