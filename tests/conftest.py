"""Servers and models that several test files share. Everything is started here and stopped here."""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import fakeredis
import pytest
import redis

from services.gateway.models import directory
from shared.model import model_source
from shared.model.llama.model import Model
from shared.settings import settings_file
from shared.wire.broker import Broker, connect
from tests.server import valkey_server

os.environ[settings_file.VARIABLE] = settings_file.OFF  # no settings of this machine's user


def pytest_collection_finish() -> None:
    """All modules and tests stay until the end: later collections of garbage need not look at them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands see no `up` that the user runs meanwhile, and those of tests are not seen by the user's commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def vocabularies_loaded_once() -> Iterator[None]:
    """Gateways of this process share what they load: several hundred tests start one, and most have the same model."""
    loaded: dict[bytes, Model] = {}

    def load(path: Path, vocab_only: bool) -> Model:
        data = path.read_bytes()
        if data not in loaded:
            loaded[data] = Model(path, vocab_only=vocab_only)
        return loaded[data]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "Model", load)
        yield


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A test leaves the environment as it found it: `--offline`, say, would keep all later ones off the network."""
    before = _environment()
    yield
    after = _environment()
    if after != before:
        os.environ.clear()
        os.environ.update(before)
    assert after == before


def _environment() -> dict[str, str]:
    """All variables but the one that pytest itself changes."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A real Valkey server for the whole session; tests flush it."""
    with valkey_server() as server:
        yield server.url


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
    return model_source.resolve("default")
