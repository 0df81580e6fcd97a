"""A drafter with its own Redis user can spoil its own luck and nothing else, whatever it sends and however fast."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest
import redis

from services.drafter.model_proposer import ModelProposer
from services.launcher.fleet import access_rules, acl
from services.verifier import introductions
from shared.wire import codec, keys
from shared.wire.broker import connect
from shared.wire.connection import RefusedError
from shared.wire.messages import VerifierCard
from tests.hostile.drafter import ATTACKS, Place, Words, commands
from tests.patience import HANG_S
from tests.server import valkey_server
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import Client, client, drafter, verifier
from tests.toy_loaded import toy
from tests.toys import ToyTarget, drafter_card

MACHINE: Final = "drafter-laptop"
ITS: Final = f"{MACHINE}{keys.OF_MACHINE}1"
PROMPT: Final = [5, 6, 7]
RIGHTS: Final = [
    (rule.commands.split(), [*rule.read, *rule.write, *rule.both]) for rule in access_rules.rights(MACHINE)
]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a server for each of its users."""
    folder = tmp_path_factory.mktemp("acl")
    acl.write(folder, "redis://127.0.0.1:0/0", ["laptop"])
    with valkey_server("127.0.0.1", "--aclfile", str(folder / acl.USERS)) as server:
        yield {
            file.stem: file.read_text()
            .strip()
            .removeprefix("DRAFTMESH_REDIS=")
            .replace("127.0.0.1:0", server.url[8:-2])
            for file in folder.glob("*.env")
        }


@dataclass(frozen=True, slots=True)
class Fleet:
    """A verifier, an honest drafter, and the hostile one's connection; all with their own users."""

    one: Client
    verifier: str
    hostile: Any
    admin: Any

    def attacks(self, request: str) -> Iterator[Words]:
        card = drafter_card(ITS, "model", "toy")
        return commands(Place(ITS, self.verifier, request, card), RIGHTS)

    async def send(self, command: Words) -> None:
        try:
            await self.hostile.execute_command(*command)
        except redis.exceptions.NoPermissionError:
            raise  # what it may not send proves nothing
        except redis.exceptions.ResponseError:
            pass  # the command's form or its key's type is wrong

    async def works(self) -> bool:
        """Whether a request is answered as ever."""
        async with asyncio.timeout(HANG_S):
            return (await self.one.ask(self.one.job(PROMPT, ENDLESS, 30))).tokens == reference(self.one, PROMPT, 30)

    async def works_in_the_end(self) -> bool:
        """The same for a client that comes again as long as Redis is full."""
        while True:
            with suppress(RefusedError):
                return await self.works()
            await asyncio.sleep(0.05)

    async def card(self) -> VerifierCard:
        return next(card for card in await self.one.registry.list() if isinstance(card, VerifierCard))

    async def helped(self) -> None:
        """Until the honest drafter's guesses are accepted again."""
        async with asyncio.timeout(HANG_S):
            while not (await self.one.ask(self.one.job(PROMPT, ENDLESS, 60))).accepted:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@asynccontextmanager
async def fleet(urls: dict[str, str], model_path: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as exits:
        name = await exits.enter_async_context(verifier(urls["verifier"], toy(model_path)))
        await exits.enter_async_context(drafter(urls["drafter"], ModelProposer(ToyTarget(n_ctx=600)), "model"))
        one = await exits.enter_async_context(client(urls["admin"], model_path))
        hostile, admin = [(await exits.enter_async_context(connect(urls[user]))).redis for user in (MACHINE, "admin")]
        await one.cards(2)
        yield Fleet(one, name, cast(Any, hostile), cast(Any, admin))


def test_there_is_an_attack_for_every_right() -> None:
    assert {command for allowed, _ in RIGHTS for command in allowed} == set(ATTACKS)
    reached = Place(ITS, "verifier-1", "r", drafter_card(ITS)).keys
    assert [pattern for _, patterns in RIGHTS for pattern in patterns if not reached(pattern)] == []


async def test_nothing_that_it_may_send_changes_an_answer_or_ends_a_process(
    urls: dict[str, str], model_path: Path
) -> None:
    async with fleet(urls, model_path) as one:
        running = one.one.job(PROMPT, ENDLESS, 500)
        answer = asyncio.create_task(one.one.ask(running))
        for name, group in itertools.groupby(one.attacks(running.request_id), lambda command: command[0]):
            for command in group:
                await one.send(command)
            assert await one.works(), name
        assert (await answer).tokens == reference(one.one, PROMPT, 500)
        await one.helped()


async def test_at_full_speed_it_is_refused_and_the_others_go_on(
    urls: dict[str, str], model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(urls, model_path) as one:
        # It presents itself well, so that it is asked and its outbox is read, and then sends as fast as it can.
        card = drafter_card(ITS, "model", "another toy")
        floods: list[str] = []
        honest: list[Words] = [
            ("SET", keys.card(ITS), codec.encode(card)), ("SADD", keys.drafters(), ITS),
        ]  # fmt: skip
        for command in honest:
            await one.send(command)
        await one.one.cards(3)
        monkeypatch.setattr(introductions.Introductions, "flooded", _noted(introductions.Introductions.flooded, floods))

        async def flood() -> None:
            while True:
                for command in (*honest, ("XADD", keys.outbox(ITS, one.verifier), "*", "m", b"x" * 5000)):
                    await one.send(command)

        flooding = [asyncio.create_task(flood()) for _ in range(4)]
        async with asyncio.timeout(HANG_S):
            while (ITS, introductions._FLOODED) not in (await one.card()).refused:
                assert await one.works()
            await one.helped()
        for task in flooding:
            task.cancel()
        await asyncio.wait(flooding)
        assert floods == [ITS]  # once: from then on its outbox is not read


async def test_what_it_leaves_at_its_verifiers_is_cleared_away(urls: dict[str, str], model_path: Path) -> None:
    async with fleet(urls, model_path) as one:
        await one.send(("SET", keys.card(ITS), codec.encode(drafter_card(ITS, "model", "another toy"))))
        await one.send(("SADD", keys.drafters(), ITS))
        await one.one.cards(3)
        outbox = keys.outbox(ITS, one.verifier)
        for _ in range(40):
            await one.send(("XADD", outbox, "*", "m", b"x" * (1 << 20)))
        async with asyncio.timeout(HANG_S):
            while await one.admin.exists(outbox):  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.05)
        assert await one.works()


async def test_what_it_hoards_under_its_own_names_is_taken_back_and_it_is_refused(
    urls: dict[str, str], model_path: Path
) -> None:
    limit = 256 << 20
    numbers = itertools.count()
    async with fleet(urls, model_path) as one:
        await one.admin.config_set("maxmemory", limit)
        mine: list[Words] = [("SET", keys.card(ITS), codec.encode(drafter_card(ITS, "model", "another toy")))]

        async def hoard() -> None:
            while True:
                number = next(numbers)
                for command in (
                    *mine,
                    ("SADD", keys.drafters(), ITS),
                    ("SET", keys.card(f"{ITS}-{number}"), b"x" * (1 << 20)),
                    ("SET", keys.draft_vocabulary(ITS, str(number)), b"x" * (1 << 20)),
                    ("XADD", keys.outbox(ITS, f"verifier-{number}"), "*", "m", b"x" * (1 << 20)),
                    ("XADD", keys.outbox(ITS, "verifier-invented"), "*", "m", b"x" * (1 << 20)),
                ):
                    await one.send(command)

        hoarding = [asyncio.create_task(hoard()) for _ in range(4)]
        try:
            async with asyncio.timeout(HANG_S):
                while (ITS, introductions.HOARDED) not in (await one.card()).refused:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                written = next(numbers)
                while next(numbers) < written + 3 * (limit >> 22):  # three times what Redis may hold, and it goes on
                    assert await one.works_in_the_end()
        finally:
            for task in hoarding:
                task.cancel()
            await asyncio.wait(hoarding)
        async with asyncio.timeout(HANG_S):
            while await one.admin.keys(f"draftmesh:*:{ITS}*"):  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.05)
        await one.helped()
        await one.admin.config_set("maxmemory", 0)
        assert all(task.cancelled() for task in hoarding)


def _noted(method: Any, floods: list[str]) -> Any:
    def flooded(self: Any, name: str) -> None:
        floods.append(name)
        method(self, name)

    return flooded
