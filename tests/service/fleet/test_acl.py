"""Each service works with the rights of its own Redis user, and that user can do nothing that only others need."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import redis
from openai import AsyncOpenAI, NotFoundError

from services.launcher.fleet import access_rules as rules
from services.launcher.fleet import acl
from services.launcher.fleet.stack import is_ready
from shared.errors import StartError
from shared.fleet.registry import Registry
from shared.wire import keys
from shared.wire.broker import connect
from shared.wire.messages import VerifierCard
from tests.ports import free_port
from tests.server import valkey_server
from tests.stack import Processes

TOOL: Any = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of a server with all users, by service; the server's owner is `admin`."""
    folder = tmp_path_factory.mktemp("acl")
    acl.write(folder, "redis://127.0.0.1:0/0", ["laptop"])
    users = folder / acl.USERS
    with valkey_server("127.0.0.1", "--aclfile", str(users)) as server:
        place = server.url[8:-2]
        yield {file.stem: address_in(file).replace("127.0.0.1:0", place) for file in folder.glob("*.env")}


def address_in(file: Path) -> str:
    """The address that a service's file sets."""
    return file.read_text().strip().removeprefix("DRAFTMESH_REDIS=")


def test_files_hold_passwords_where_they_belong(tmp_path: Path) -> None:
    acl.write(tmp_path / "new", "rediss://h:6380/1")
    users = (tmp_path / "new" / acl.USERS).read_text()
    for service in rules.SERVICES:
        file = tmp_path / "new" / f"{service}.env"
        assert file.stat().st_mode & 0o077 == 0
        name, _, password = file.read_text().removeprefix("DRAFTMESH_REDIS=rediss://").partition("@")[0].partition(":")
        assert name == service
        assert len(password) >= 32
        assert password not in users
    with pytest.raises(StartError, match=r"FOLDER .* users\.acl already; --update"):
        acl.write(tmp_path / "new", "redis://h")
    for address in ("redis://user:secret@h", "unix:///x", "h:1"):
        with pytest.raises(StartError) as caught:
            acl.write(tmp_path / "other", address)
        assert "secret" not in str(caught.value)


SECRET: tuple[tuple[str, ...], ...] = (
    ("GET", "other-application:key"),
    ("KEYS", "*"),
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("BGSAVE",),
    ("MONITOR",),
    ("SHUTDOWN",),
    ("MODULE", "LIST"),
    ("REPLICAOF", "192.0.2.1", "1"),
    ("SCRIPT", "FLUSH"),
    ("EVAL", "return redis.call('GET', KEYS[1])", "1", "other-application:key"),
    ("PUBLISH", "c", "m"),
    ("SUBSCRIBE", "c"),
    ("CLIENT", "LIST"),
)
LOOKING_THROUGH: tuple[tuple[str, ...], ...] = (("SCAN", "0"), ("MEMORY", "USAGE", keys.card("drafter-1")))
TAKEOVER: tuple[tuple[str, ...], ...] = (
    ("EVAL", "return redis.call('HSET', KEYS[1], 'owner', 'me')", "1", keys.job("r")),
    ("EVAL", "return 1", "1", keys.job("r")),
    ("HSET", keys.job("r"), "epoch", "9"),
    ("DEL", keys.job("r")),
    ("XADD", keys.log("r"), "*", "c", "x"),
    ("XADD", keys.jobs("m"), "*", "r", "x"),
    ("XREADGROUP", "GROUP", keys.GROUP, "me", "STREAMS", keys.jobs("m"), ">"),
    ("ZADD", keys.admitted("m"), "1", "x"),
)
MACHINE: Final = "drafter-laptop"  # the user of a machine that joined
ITS: Final = "drafter-laptop@1"
ANOTHER: Final = ("drafter-1", "drafter-laptop", "drafter-laptop-2@1", "drafter-desk@1")
IMPOSTURE: dict[str, tuple[tuple[str, ...], ...]] = {
    "gateway": (
        ("XREAD", "STREAMS", keys.outbox("drafter-1", "verifier-1"), "0"),
        ("XRANGE", keys.outbox("drafter-1", "verifier-1"), "-", "+"),
        ("XREAD", "STREAMS", keys.inbox("drafter-1"), "0"),
        ("XADD", keys.inbox("drafter-1"), "*", "m", "x"),
        ("XADD", keys.outbox("drafter-1", "verifier-1"), "*", "m", "x"),
        ("XREADGROUP", "GROUP", keys.GROUP, "me", "STREAMS", keys.jobs("m"), ">"),
        ("SET", keys.vocabulary("d"), "x"),
        ("SET", keys.served("m"), "x"),
        ("GETRANGE", keys.draft_vocabulary("drafter-1", "d"), "0", "1"),
        ("SET", keys.card("verifier-1"), "x"),
        ("DEL", keys.card("drafter-1")),
        ("XREAD", "STREAMS", keys.wake("other"), "0"),
    ),
    "verifier": (
        ("XREAD", "STREAMS", keys.inbox("drafter-1"), "0"),
        ("DEL", keys.inbox("drafter-1")),
        ("XADD", keys.outbox("drafter-1", "verifier-1"), "*", "m", "x"),
        ("GET", keys.turn("call")),
        ("GET", keys.response("c", "r")),
        ("XRANGE", keys.record("c", "r"), "-", "+"),
        ("ZRANGE", keys.shelf("responses"), "0", "-1"),
        ("SET", keys.draft_vocabulary("drafter-1", "d"), "x"),
        ("SET", keys.card("gateway-1"), "x"),
        ("DEL", keys.admitted("m")),
        ("MEMORY", "USAGE", keys.response("c", "r")),
        ("UNLINK", keys.turn("call")),
        ("UNLINK", keys.card("verifier-1")),
    ),
    "drafter": (
        *TAKEOVER,
        ("XADD", keys.inbox("verifier-1"), "*", "m", "x"),
        ("XREAD", "STREAMS", keys.outbox("drafter-1", "verifier-1"), "0"),
        ("SET", keys.inbox("drafter-1"), "x"),
        ("SADD", keys.cards(), "x"),
        ("SREM", keys.drafters(), "x"),
        ("DEL", keys.drafters()),
        ("SET", keys.vocabulary("d"), "x"),
        ("SET", keys.served("m"), "x"),
        ("GET", keys.turn("call")),
        ("GET", keys.response("c", "r")),
        ("XRANGE", keys.record("c", "r"), "-", "+"),
        ("SET", keys.card("verifier-1"), "x"),
        ("SET", keys.card("gateway-1"), "x"),
        ("SCRIPT", "LOAD", "return 1"),
    ),
    MACHINE: (
        *TAKEOVER,
        *(
            command
            for other in ANOTHER
            for command in (
                ("SET", keys.card(other), "x"),
                ("DEL", keys.card(other)),
                ("XADD", keys.inbox(other), "*", "m", "x"),
                ("XREAD", "STREAMS", keys.inbox(other), "0"),
                ("DEL", keys.inbox(other)),
                ("PEXPIRE", keys.inbox(other), "0"),
                ("XADD", keys.outbox(other, "verifier-1"), "*", "m", "x"),
                ("PEXPIRE", keys.outbox(other, "verifier-1"), "0"),
                ("SET", keys.draft_vocabulary(other, "d"), "x"),
                ("PEXPIRE", keys.draft_vocabulary(other, "d"), "0"),
            )
        ),
        ("SET", keys.inbox(ITS), "x"),
        ("SET", keys.outbox(ITS, "verifier-1"), "x"),
    ),
    "operator": (
        *TAKEOVER,
        ("HGET", keys.job("r"), "payload"),
        ("XRANGE", keys.log("r"), "-", "+"),
        ("SREM", keys.cards(), "x"),
        ("SET", keys.card("operator-1"), "x"),
    ),
    "scaler": (
        *TAKEOVER,
        ("HGET", keys.job("r"), "payload"),
        ("ZRANGE", keys.lanes("m"), "0", "-1"),
        ("ZREM", keys.lanes("m"), "x"),
        ("DEL", keys.admitted("m")),
        ("SMEMBERS", keys.cards()),
    ),
}


@pytest.mark.parametrize("service", IMPOSTURE)
def test_what_is_not_its_own_is_out_of_reach(urls: dict[str, str], service: str) -> None:
    with redis.Redis.from_url(urls[service]) as client:
        assert client.ping()
        for command in (*SECRET, *(() if service == "verifier" else LOOKING_THROUGH), *IMPOSTURE[service]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)


def test_the_scaler_counts_requests_as_keda_does(urls: dict[str, str]) -> None:
    source = (
        "local kind = redis.call('type', KEYS[1]).ok; local by = {zset = 'zcard', none = 'llen'}"
        " return redis.call(by[kind], KEYS[1])"
    )
    with redis.Redis.from_url(urls["admin"]) as admin, redis.Redis.from_url(urls["scaler"]) as client:
        admin.zadd(keys.admitted("m"), {"one": 1, "two": 2})
        assert client.eval(source, 1, keys.admitted("m")) == 2
        admin.delete(keys.admitted("m"))


def test_a_script_gives_no_rights_beyond_its_user_s(urls: dict[str, str]) -> None:
    source = "return redis.call('GET', 'draftmesh:draft-vocabulary:x')"
    with (
        redis.Redis.from_url(urls["gateway"]) as client,
        pytest.raises(redis.exceptions.ResponseError, match=r"(?i)acl|permission"),
    ):
        client.eval(source, 0)


def test_without_a_password_one_sees_that_the_server_lives_and_no_more(urls: dict[str, str]) -> None:
    nobody = "redis://" + urls["admin"].rpartition("@")[2]
    with redis.Redis.from_url(nobody) as client:
        assert client.ping()
        for command in (*SECRET, *LOOKING_THROUGH):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
    with (
        redis.Redis.from_url(urls["gateway"].replace("gateway:", "gateway:x")) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()


@pytest.fixture
def started(urls: dict[str, str]) -> Iterator[dict[str, Processes]]:
    services = {service: Processes(urls[service]) for service in ("gateway", "verifier", "drafter")}
    yield services
    for one in services.values():
        one.end()


@pytest.mark.model
@pytest.mark.timeout(600)
async def test_the_whole_service_works_with_a_user_per_service(
    urls: dict[str, str], started: dict[str, Processes], tmp_path: Path
) -> None:
    with redis.Redis.from_url(urls["admin"]) as admin:
        admin.acl_log_reset()
    address = f"http://127.0.0.1:{free_port()}"
    sizes = ("--threads", "1", "--ctx", "512", "--parallel", "2", "--log-level", "debug")
    with (tmp_path / "log").open("wb") as log:
        started["gateway"].start("gateway", "--port", address.rpartition(":")[2], "--log-level", "debug", log=log)
        started["verifier"].start("verifier", *sizes, log=log)
        started["drafter"].start("drafter", log=log)
        started["drafter"].start("drafter", "--draft-model", "default", "--name", "mine", *sizes, log=log)
        async with asyncio.timeout(300):
            await _ready(urls["operator"], address)
            async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
                await _use(client)
            async with aiohttp.ClientSession() as http, http.get(f"{address}/metrics") as response:
                assert "draftmesh_redis_memory_bytes " in await response.text()
        for service in ("drafter", "verifier", "gateway"):
            for process in started[service].running:
                process.terminate()
                assert process.wait(30) == 0
    with redis.Redis.from_url(urls["admin"]) as admin:
        denials = [entry for entry in admin.acl_log() if entry["username"] in started]
    assert [entry for entry in denials if not entry["object"].startswith("client")] == []
    text = (tmp_path / "log").read_text()
    passwords = [url.partition("@")[0].rpartition(":")[2] for service, url in urls.items() if service != "admin"]
    for unwanted in ("Traceback", "one, two", "four", *passwords):
        assert unwanted not in text, [line for line in text.splitlines() if unwanted in line][:3]


async def _ready(operator: str, address: str) -> None:
    """Until the verifier knows both drafters, as the operator's user sees it, and the gateway the verifier."""
    async with connect(operator) as broker, aiohttp.ClientSession() as http:
        registry = Registry(broker.redis)

        async def complete() -> bool:
            cards = await registry.list()
            return any(isinstance(card, VerifierCard) and len(card.drafters) == 2 for card in cards)

        while not (await complete() and await is_ready(http, address)):  # noqa: ASYNC110 - in other processes
            await asyncio.sleep(0.1)


async def _use(client: AsyncOpenAI) -> None:
    """What touches every kind of key: drafts, a stream that is left, a call and the turn after it, stored responses, a
    model that nobody serves.
    """
    messages: list[Any] = [{"role": "user", "content": "Count: one, two, three, one, two, three, one, two,"}]
    whole = await client.chat.completions.create(
        model="default", messages=messages, max_tokens=24, temperature=0, extra_body={"speculative": True}
    )
    assert "drafter-mine" in whole.model_extra["speculative"]["by_source"]  # type: ignore[index]
    left = await client.chat.completions.create(model="default", messages=messages, max_tokens=300, stream=True)
    await anext(aiter(left))
    await left.close()
    forced: Any = {"type": "function", "function": {"name": "look_up"}}
    called = await client.chat.completions.create(
        model="default", messages=messages, tools=[TOOL], tool_choice=forced, max_tokens=60
    )
    [call] = called.choices[0].message.tool_calls or []
    messages.append(called.choices[0].message.to_dict())
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "four"})
    await client.chat.completions.create(model="default", messages=messages, tools=[TOOL], max_tokens=2)
    first = await client.responses.create(model="default", input="Hi", max_output_tokens=2)
    second = await client.responses.create(
        model="default", input="And?", previous_response_id=first.id, max_output_tokens=2
    )
    assert (await client.responses.retrieve(second.id)).id == second.id
    await client.responses.delete(first.id)
    long = await client.responses.create(model="default", input="Hi", max_output_tokens=300, background=True)
    events = await client.responses.retrieve(long.id, stream=True)
    await anext(aiter(events))
    await events.close()
    assert (await client.responses.cancel(long.id)).status == "cancelled"
    await client.responses.delete(long.id)
    with pytest.raises(NotFoundError):
        await client.models.retrieve("unknown")
