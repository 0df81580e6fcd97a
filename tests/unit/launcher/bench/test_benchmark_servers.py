"""The client of `draftmesh bench` against servers of several dialects, and what it makes of those that fail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.launcher.bench.acceptance import DraftCounts
from services.launcher.bench.client import ask
from services.launcher.bench.plan import BenchSettings, PlannedRequest, turns, warm_up
from services.launcher.bench.runner import Runner
from services.launcher.bench.servers import Server, ServerAddress, addresses, connect
from services.launcher.bench.workloads import Workload
from services.launcher.clients.streaming import AnswerError
from shared.errors import StartError
from tests.dialects import DONE, Answer, Fake, bare, cut_off, event, failing, llama_server, ours, piece, strict
from tests.ports import free_port

MESSAGES = ({"role": "user", "content": "Hi"},)
REQUEST = PlannedRequest(prompt=0, step=0, messages=MESSAGES, twin=MESSAGES, temperature=0.0, seed=3, tokens=4)
SETTINGS = BenchSettings(
    workloads=(Workload.CHAT,), concurrencies=(1,), temperatures=(0.0,), tokens=8, repeat=2, seed=1
)

Serve = Callable[[Fake], Awaitable[Server]]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


@pytest.fixture
async def serve(http: aiohttp.ClientSession) -> AsyncIterator[Serve]:
    """Starts a fake and introduces the client to it."""
    started: list[TestServer] = []

    async def start(fake: Fake) -> Server:
        server = TestServer(fake.app())
        started.append(server)
        await server.start_server()
        return await connect(http, ServerAddress(name=fake.name, url=server.make_url("/")))

    yield start
    for server in started:
        await server.close()


def ticks() -> Callable[[], float]:
    """A clock that is a second later at every look: figures then do not depend on the machine."""
    seconds = count()
    return lambda: float(next(seconds))


# --- one answer ---


@pytest.mark.parametrize(
    ("answer", "tokens", "counted", "arrivals", "acceptance"),
    [
        (ours, 5, "usage", (2.0, 3.0), DraftCounts(drafted=4, accepted=3, reached=(2.0, 2.0), kept=(2.0, 1.0))),
        (llama_server, 4, "usage", (2.0, 3.0, 4.0, 5.0), DraftCounts(drafted=3, accepted=2)),
        (bare, 3, "chunks", (1.0, 2.0, 3.0), None),
    ],
)
async def test_an_answer_is_understood_whatever_server_gives_it(
    answer: Answer,
    tokens: int,
    counted: str,
    arrivals: tuple[float, ...],
    acceptance: DraftCounts | None,
    http: aiohttp.ClientSession,
    serve: Serve,
) -> None:
    reply = await ask(http, await serve(Fake(answer)), REQUEST, {}, ticks())
    assert (reply.tokens, reply.counted, reply.arrivals_s) == (tokens, counted, arrivals)
    assert reply.acceptance == acceptance
    assert reply.first_token_s == arrivals[0]


async def test_the_request_is_openais_with_the_fields_that_make_servers_comparable(
    http: aiohttp.ClientSession, serve: Serve
) -> None:
    fake = Fake(ours)
    await ask(http, await serve(fake), REQUEST, {"top_k": 0})
    assert fake.asked == [
        {
            "model": "small",
            "messages": [{"role": "user", "content": "Hi"}],
            "temperature": 0.0,
            "top_p": 1.0,
            "seed": 3,
            "max_tokens": 4,
            "stream": True,
            "stream_options": {"include_usage": True},
            "top_k": 0,
        }
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failing, "HTTP 500.*out of memory"),
        (cut_off, "without its last event"),
        (lambda _: [piece("a"), event(error={"message": "the model died"}), DONE], "the model died"),
        (lambda _: [piece("", "stop"), DONE], "without text"),
        (lambda _: ["data: <html>\n\n"], "not a stream of OpenAI's dialect"),
        (lambda _: ["data: [1]\n\n"], "not a stream of OpenAI's dialect"),
        (lambda _: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "HTTP 302"),
    ],
)
async def test_what_is_not_an_answer_is_an_error(
    answer: Answer, message: str, http: aiohttp.ClientSession, serve: Serve
) -> None:
    server = await serve(Fake(answer))
    with pytest.raises(AnswerError, match=message):
        await ask(http, server, REQUEST, {})


async def test_a_server_that_is_gone_is_an_error(http: aiohttp.ClientSession) -> None:
    [address] = addresses(f"http://127.0.0.1:{free_port()}", [], [], [])
    with pytest.raises(AnswerError, match="connection lost"):
        await ask(http, Server(address=address, model="m", software=""), REQUEST, {})


# --- which servers ---


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("http://h:1", "h:1", "http://h:1/"),
        ("h:8080", "h:8080", "http://h:8080/"),
        ("http://h:1/v1/", "h:1", "http://h:1/"),
        ("http://h:1/proxy/v1/chat/completions", "h:1", "http://h:1/proxy"),
        ("mine=https://h", "mine", "https://h/"),
        ("http://h:1/a=b", "h:1", "http://h:1/a=b"),
    ],
)
def test_a_server_is_named_and_found(text: str, name: str, url: str) -> None:
    [address] = addresses(text, [], [], [])
    assert (address.name, str(address.url)) == (name, url)


def test_keys_and_models_belong_to_servers_in_order() -> None:
    first, second = addresses("h:1", ["h:2"], ["k"], ["", "m"])
    assert (first.headers, second.headers) == ({"Authorization": "Bearer k"}, {})
    assert (first.model, second.model) == ("", "m")
    assert "k" not in repr(first).replace("key", "")


@pytest.mark.parametrize(
    ("url", "others", "keys", "line"),
    [
        ("ftp://h", [], [], "URL ftp://h: an address such as"),
        ("http://user:secret@", [], [], "URL http://…@: an address such as"),
        ("h:x", [], [], "URL h:x: an address such as"),
        ("h:1", ["http://h:1/v1"], [], "--compare h:1: two servers have this name"),
        ("h:1", [], ["secret", "secret"], r"--api-key \(2 times\): one per server, in order; here: 1"),
        ("http://u:secret@h:1", [], ["secret"], "--api-key .not shown.: h has a password"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_secrets(
    url: str, others: list[str], keys: list[str], line: str
) -> None:
    with pytest.raises(StartError, match=line) as caught:
        addresses(url, others, keys, [])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("models", "status", "line"),
    [
        ({"data": []}, 200, "lists no model at /v1/models .HTTP 200.; name one with --model"),
        ({"object": "list"}, 200, "lists no model"),
        ("nothing", 404, "lists no model at /v1/models .HTTP 404."),
        ({}, 401, "refuses the key .HTTP 401.; --api-key"),
    ],
)
async def test_a_server_without_a_model_is_refused(models: object, status: int, line: str, serve: Serve) -> None:
    with pytest.raises(StartError, match=line):
        await serve(Fake(ours, models=models, status=status))


async def test_a_named_model_needs_no_list(http: aiohttp.ClientSession) -> None:
    server = TestServer(Fake(ours, status=404).app())
    await server.start_server()
    known = await connect(http, ServerAddress(name="x", url=server.make_url("/"), model="mine"))
    await server.close()
    assert known.model == "mine"


# --- a run ---


async def test_servers_take_turns_and_odd_repetitions_go_backwards(http: aiohttp.ClientSession, serve: Serve) -> None:
    log: list[str] = []
    fakes = [Fake(ours, log=log, name="a"), Fake(llama_server, log=log, name="b")]
    runner = Runner(http, [await serve(fake) for fake in fakes])
    await runner.warm_up(warm_up(SETTINGS))
    assert (log, runner.measured.samples) == (["a", "b"], [])
    await runner.run(turns(SETTINGS))
    assert log[2:] == ["a", "b", "b", "a"]
    same = ("messages", "seed", "temperature", "max_tokens")
    for one, other in zip(fakes[0].asked, fakes[1].asked, strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


async def test_requests_at_once_are_really_at_once(http: aiohttp.ClientSession) -> None:
    """The server answers nobody before all are there, so that this would not end otherwise."""
    everybody = asyncio.Barrier(4)

    async def answer(request: web.Request) -> web.StreamResponse:
        await everybody.wait()
        return web.Response(text="".join(ours({})), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    fake = TestServer(app)
    await fake.start_server()
    server = Server(address=ServerAddress(name="a", url=fake.make_url("/")), model="m", software="")
    settings = BenchSettings(
        workloads=(Workload.CHAT,), concurrencies=(4,), temperatures=(0.0,), tokens=8, repeat=1, seed=1
    )
    runner = Runner(http, [server])
    await runner.run(turns(settings))
    await fake.close()
    assert len(runner.measured.samples) == 4
    assert [load.tokens for load in runner.measured.loads] == [4 * 5]


async def test_a_failed_request_is_counted_and_the_run_goes_on(http: aiohttp.ClientSession, serve: Serve) -> None:
    answers: Iterator[Answer] = iter([ours, ours, failing, ours])
    seen: list[str] = []
    runner = Runner(http, [await serve(Fake(lambda body: next(answers)(body)))], seen.append)
    settings = BenchSettings(
        workloads=(Workload.AGENT,), concurrencies=(1,), temperatures=(0.0,), tokens=8, repeat=1, seed=1
    )
    await runner.warm_up(warm_up(settings))
    await runner.run(turns(settings))
    measured = runner.measured
    assert [sample.step for sample in measured.samples] == [0, 2]
    [failure] = measured.failures
    assert "out of memory" in failure.message
    assert measured.loads == []  # a turn with a hole says nothing about all requests together
    assert seen == ["fake"] * 3


async def test_a_server_that_takes_only_openais_fields_is_asked_without_the_others(
    http: aiohttp.ClientSession, serve: Serve
) -> None:
    fake = Fake(strict)
    runner = Runner(http, [await serve(fake)])
    await runner.warm_up(warm_up(SETTINGS))
    await runner.run(turns(SETTINGS))
    assert runner.cut == ["fake"]
    assert (len(runner.measured.samples), runner.measured.failures) == (2, [])
    assert [body.get("top_k") for body in fake.asked] == [0, None, None, None]


async def test_a_server_that_cannot_answer_at_all_ends_the_run_before_it_begins(
    http: aiohttp.ClientSession, serve: Serve
) -> None:
    runner = Runner(http, [await serve(Fake(failing))])
    with pytest.raises(StartError, match="server fake: cannot answer: HTTP 500"):
        await runner.warm_up(warm_up(SETTINGS))
