"""Runs of `draftmesh bench` in this process, against fakes in a thread of their own."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp.test_utils import TestServer

from services.launcher import cli
from shared.settings import command_line
from tests.dialects import Fake

Start = Callable[[Fake], str]


@contextmanager
def fakes() -> Iterator[Start]:
    """What starts a fake in a thread, since the command has an event loop of its own, and returns its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[TestServer] = []

    def start(fake: Fake) -> str:
        server = TestServer(fake.app())
        servers.append(server)
        asyncio.run_coroutine_threadsafe(server.start_server(), loop).result(10)
        return str(server.make_url("/"))

    try:
        yield start
    finally:
        for server in servers:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run `draftmesh bench` with little to do; returns its exit status."""
    few = ("--workload", "chat", "--temperature", "0", "--tokens", "8", "--repeat", "2")
    return run(monkeypatch, "bench", *few, *arguments)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """Run `draftmesh` with these words; returns its exit status."""
    monkeypatch.setattr(sys, "argv", ["draftmesh", *words])
    with pytest.raises(SystemExit) as caught:
        command_line.run(cli.app, "draftmesh")
    return caught.value.code
