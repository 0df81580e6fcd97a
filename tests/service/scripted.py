"""A gateway over a real Redis server with a scripted verifier behind it, and what talks to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from msgspec.structs import replace
from redis.exceptions import RedisError

from services.gateway.service import GatewaySettings, serve
from shared.fleet.registry import Registry, VocabularyKeeper, content_digest
from shared.model import model_source
from shared.model.llama.model import Model
from shared.model.vocabulary import vocabulary_gguf
from shared.settings.gateway_options import GatewayOptions
from shared.wire import broker, keys
from shared.wire.jobs import Append, Claim, JobStore
from shared.wire.messages import Announced, Chunk, Finish, Job, Speculation, VerifierCard
from shared.wire.reading import parse_entry
from shared.wire.scripts import ScriptOutcome

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

Step = Chunk | asyncio.Event
Script = Callable[[Job], Sequence[Step]]

MODEL = "smol"
VOCABULARY = content_digest(vocabulary_gguf(model_source.resolve("default")))
EOG = 2
HI = 26_843  # "Hi"
TEXTS = ["Hello 😀😀 world", "漢字とかな", "🇩🇪🇫🇷 👨‍👩‍👧 é", "", "plain"]
MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]
COUNTERS = {"draft_tokens": 10, "accepted_tokens": 6, "drafts": 4, "rounds": 5, "tokens": 11}
COUNTERS |= {"prompt_tokens": 30, "cached_tokens": 12}


class FakeVerifier:
    """Claims jobs one after the other and commits what the script says; an event in the script is waited for."""

    def __init__(self, clients: broker.Broker, script: Script, model: str = MODEL) -> None:
        self._store = JobStore(clients.redis, clients.blocking, model)
        self._script = script
        self.jobs: list[Job] = []
        self.outcomes: list[ScriptOutcome] = []

    async def run(self) -> None:
        await self._store.ensure_group()
        while True:
            try:
                request_id = await self._store.next_job("fake", 500)
            except RedisError:
                return
            if request_id is None:
                continue
            claim = await self._store.claim(request_id, "fake")
            if isinstance(claim, Claim):
                await self._serve(claim)

    async def _serve(self, claim: Claim) -> None:
        self.jobs.append(claim.job)
        base = 0
        for step in self._script(claim.job):
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            append = Append(request_id=claim.job.request_id, epoch=claim.epoch, base=base, chunk=step)
            [outcome] = await self._store.commit([append])
            self.outcomes.append(outcome)
            if outcome is not ScriptOutcome.OK:
                return
            base += len(step.tokens)


@dataclass(kw_only=True)
class Stack:
    """What a test talks to."""

    url: str
    clients: broker.Broker
    verifier: FakeVerifier
    stop: asyncio.Event
    session: aiohttp.ClientSession
    registry: Registry
    key: str = "none"
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def openai(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI  # takes long to import, and most files of tests use none of its clients

        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)

    @property
    def anthropic(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic  # likewise

        return AsyncAnthropic(base_url=self.url, api_key=self.key, max_retries=0)

    async def post(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"messages": MESSAGES, **fields}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            return response.status, await response.json()

    async def transcript(self, path: str, **body: Any) -> str:
        """The body of an answer as it came."""
        async with self.session.post(f"{self.url}{path}", json=body) as response:
            assert response.status == 200
            return await response.text()

    async def frames(self, **fields: Any) -> list[Any]:
        """The data of a stream's frames, parsed but for the end mark."""
        body = {"messages": MESSAGES, "stream": True, **fields}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/event-stream")
            lines = (await response.text()).split("\n\n")
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in data]

    async def terminal(self, request_id: str) -> Finish:
        """How a job ended, waiting for it."""
        key, cursor = keys.log(request_id), "0-0"
        while True:
            reply = await self.clients.blocking.xread({key: cursor}, block=2000)
            assert reply, "the job did not end"
            for entry_id, fields in reply[0][1]:
                cursor = entry_id.decode()
                chunk = parse_entry(entry_id, fields)[1]
                if chunk.finish is not Finish.NONE:
                    return chunk.finish


def card(**changes: Any) -> VerifierCard:
    values: dict[str, Any] = {
        "id": "verifier-1",
        "host": "h",
        "pid": 1,
        "model": MODEL,
        "fingerprint": "f" * 32,
        "vocabulary": VOCABULARY,
        "n_vocab": 49152,
        "n_ctx": 512,
        "slots": 4,
        "device": "cpu",
        "exactness": "strict",
        "exactness_note": "",
        "layout": "streams",
        "speculation": Speculation.AUTO,
        "counters": COUNTERS,
        "accepted_per_position": (4, 2),
        "created": 1,
    }
    return VerifierCard(**{**values, **changes})


def gateway_settings(url: str, **changes: Any) -> GatewaySettings:
    """A small gateway on a free port; `changes` are options, and what no option sets."""
    inner = {name: changes.pop(name) for name in ("heartbeat_s",) if name in changes}
    options: dict[str, Any] = {"port": 0, "max_requests": 8, "request_timeout": 60.0}
    return GatewaySettings(GatewayOptions(redis=url, **options | changes), **inner)


class LastingRegistry(Registry):
    """Cards that stay until they are withdrawn: on a busy machine a test may take longer than a card lasts."""

    async def beat(self, card: Announced) -> None:
        await super().beat(card)
        await self._redis.pexpire(keys.card(card.id), 600_000)


@asynccontextmanager
async def stack(
    url: str,
    vocabulary: bytes,
    script: Script = lambda _: [],
    *,
    cards: Sequence[VerifierCard] = (card(),),
    api_key: Sequence[str] = (),
    **changes: Any,
) -> AsyncIterator[Stack]:
    async with broker.connect(url) as clients, aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        await cast(Any, clients.redis).flushall()
        registry = LastingRegistry(clients.redis)
        keeper = VocabularyKeeper(registry, keys.vocabulary, lambda: vocabulary)
        await keeper.keep()
        for one in cards:
            await registry.beat(replace(one, vocabulary=keeper.digest))
        stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
        gateway = group.create_task(serve(gateway_settings(url, api_key=list(api_key), **changes), stop, started))
        verifier = FakeVerifier(clients, script)
        loop = group.create_task(verifier.run())
        running = Stack(
            url=await started,
            clients=clients,
            verifier=verifier,
            stop=stop,
            session=session,
            registry=registry,
            key=next(iter(api_key), "none"),
        )
        gateway.add_done_callback(lambda _: running.stopped.set())
        try:
            yield running
        finally:
            stop.set()
            loop.cancel()


def cut(tokens: Sequence[int], width: int, finish: Finish = Finish.STOP) -> list[Step]:
    """The tokens in commits of `width`; the last one carries the finish."""
    parts = [tuple(tokens[start : start + width]) for start in range(0, len(tokens), width)] or [()]
    chunks: list[Step] = [Chunk(tokens=part) for part in parts[:-1]]
    return [*chunks, Chunk(tokens=parts[-1], finish=finish)]


def fixed(*steps: Step) -> Script:
    """The same for every job."""
    return lambda _: steps


def speaking(model: Model, text: str, width: int = 1, finish: Finish = Finish.STOP) -> Script:
    tokens = model.vocabulary.tokenize(text)
    return lambda _: cut([*tokens, EOG] if finish is Finish.STOP else tokens, width, finish)
