"""A verifier on one device dies in the middle of an answer, and one on another device goes on with it."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import redis.asyncio as asyncio_redis

from services.gateway.storage.follow import LogFollower
from shared.model.llama.vocabulary import Vocabulary
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.messages import Sampling
from tests.devices import fleet
from tests.devices.conftest import Targets
from tests.devices.judge import shortfalls
from tests.devices.places import CPU, VULKAN
from tests.following import follow
from tests.ports import free_port
from tests.stack import Processes

QUESTION = "Is the ferry late?"
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
TOKENS = 40
LAW = Sampling(seed=11, temperature=1.0)


@dataclass(frozen=True, slots=True)
class Taken:
    """An answer that two verifiers wrote."""

    streamed: list[int]  # what the client got
    logged: list[int]  # what the log held, in one piece without gaps
    committed: int  # tokens that the first one had committed when it died
    finish: str


async def test_the_answer_goes_on_where_it_was_and_as_the_new_device_computes_it(
    valkey: Broker,
    valkey_url: str,
    variables: dict[str, str],
    models: dict[str, Path],
    vocabulary: Vocabulary,
    targets: Targets,
    tmp_path: Path,
) -> None:
    """Nothing is lost and nothing comes twice; from there on it is the new device's answer to all that stands."""
    first, second = targets(VULKAN), targets(CPU)
    assert second.facts.level == "strict"
    taken = await asyncio.wait_for(take(valkey, valkey_url, variables, models[VULKAN.name], tmp_path), 300)
    assert taken.streamed == taken.logged
    assert (len(taken.streamed), taken.finish) == (TOKENS, "length")
    assert 0 < taken.committed < TOKENS
    prompt = vocabulary.tokenize(PROMPT)
    before = await asyncio.to_thread(shortfalls, first, prompt, taken.streamed[: taken.committed], LAW)
    after = await asyncio.to_thread(shortfalls, second, prompt, taken.streamed, LAW)
    assert max(before) <= 2 * first.facts.noise
    assert after[taken.committed :] == [0.0] * (TOKENS - taken.committed)


async def take(valkey: Broker, url: str, variables: dict[str, str], model: Path, folder: Path) -> Taken:
    """Ask, kill the verifier on Vulkan as soon as some tokens have come, and start one on the CPU."""
    processes = Processes(url, variables)
    address = f"http://127.0.0.1:{free_port()}"
    options = ["--target-model", str(model), "--lease", "2"]
    try:
        processes.start("gateway", "--port", address.rpartition(":")[2])
        verifier = fleet.start(processes, folder / "first", "verifier", *options, *VULKAN.options())
        await fleet.cards(url, {"draft": model}, 2)
        body = {
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": TOKENS,
            "temperature": LAW.temperature,
            "seed": LAW.seed,
            "stream": True,
            "return_token_ids": True,
        }
        streamed: list[int] = []
        finish = ""
        committed = 0
        follower = LogFollower(valkey.redis, valkey.blocking, "a-second-reader")
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.post(f"{address}/v1/chat/completions", json=body) as response,
            asyncio.TaskGroup() as group,
        ):
            following = group.create_task(follower.run())
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                frame = json.loads(line[6:])
                assert "error" not in frame
                for choice in frame["choices"]:
                    streamed += choice.get("token_ids") or []
                    finish = choice["finish_reason"] or finish
                if streamed and not committed:
                    verifier.kill()
                    await asyncio.to_thread(verifier.wait, 30)
                    request_id, committed = await log_end(url)
                    reading = group.create_task(read(follower, request_id))
                    fleet.start(processes, folder / "second", "verifier", *options, *CPU.options())
            logged = await reading
            following.cancel()
        return Taken(streamed, logged, committed, finish)
    finally:
        await asyncio.to_thread(processes.end)


async def read(follower: LogFollower, request_id: str) -> list[int]:
    """The whole log; a follower stops at a gap or a repetition."""
    tokens: list[int] = []
    async with aclosing(follow(follower, request_id)) as chunks:
        async for chunk in chunks:
            tokens += chunk.tokens
    return tokens


async def log_end(url: str) -> tuple[str, int]:
    """The id of the only request and how many tokens its log has."""
    client: Any = asyncio_redis.Redis.from_url(url)
    [key] = [key async for key in client.scan_iter(keys.log("*"))]
    [(entry, _)] = await client.xrevrange(key, count=1)
    await client.aclose()
    return key.decode().partition("{")[2].partition("}")[0], int(entry.partition(b"-")[0])
