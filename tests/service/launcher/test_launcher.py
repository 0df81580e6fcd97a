"""The launcher with real processes: compose.yaml's command lines one by one, and `up` as a whole."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from shared.fleet.registry import Registry
from shared.wire.broker import connect
from shared.wire.messages import Card, DrafterCard, VerifierCard
from tests import tiny_models
from tests.command_lines import launch_in
from tests.patience import LOADING_S, PROCESS_S
from tests.ports import free_port
from tests.processes import children, runs

ROOT = Path(__file__).parents[3]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}


def compose_environment(service: str, url: str) -> dict[str, str]:
    """The service's variables as compose would set them for a user who set none, but with our Redis."""
    values = SERVICES[service]["environment"]
    plain = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in values.items()}
    return {**clean_environment(), **plain, "DRAFTMESH_REDIS": url}


@contextmanager
def draftmesh(*arguments: str, environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-P", "-m", "services.launcher", *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition: Callable[[], bool], process: "subprocess.Popen[str]", log: Path) -> None:
    deadline = time.monotonic() + LOADING_S
    while not condition():
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)


def cards(url: str) -> list[Card]:
    async def read() -> list[Card]:
        async with connect(url) as broker:
            return await Registry(broker.redis).list()

    return asyncio.run(read())


@pytest.mark.parametrize("service", ["gateway", "verifier", "drafter"])
def test_the_command_of_compose_registers_and_stops_cleanly(service: str, valkey_url: str, tmp_path: Path) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        client.flushall()
    arguments = [free_port_for(part) for part in SERVICES[service]["command"]]
    log = tmp_path / "log"
    with draftmesh(*arguments, environment=compose_environment(service, valkey_url), log=log) as process:
        until(lambda: [card.pid for card in cards(valkey_url)] == [process.pid], process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()[-2000:]
    assert cards(valkey_url) == []


def free_port_for(part: str) -> str:
    """The container's port may be in use on this machine; nothing else of the command line is changed."""
    return str(free_port()) if part == "7071" else part


@pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in /proc")
def test_up_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("up", "--port", "0", "--redis-port", "0", "--parallel", "2", "--ctx", "512", "--threads", "1")
    with draftmesh(*options, environment=clean_environment(), log=log) as process:
        assert process.stdout is not None
        ready, request = process.stdout.readline(), process.stdout.readline()
        assert ready.startswith("draftmesh is ready: http://127.0.0.1:"), log.read_text()[-2000:]
        assert answer(request)
        started = children(process.pid)
        assert len(started) == 4  # Valkey, gateway, verifier, the lookup drafter
        finds_the_fleet_without_being_told(ready.split()[-1].removesuffix("/v1"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()[-2000:]
    assert not [pid for pid in started if runs(pid)]
    assert said("logs").returncode == 1


def finds_the_fleet_without_being_told(url: str) -> None:
    """Redis has a port of its own choice, so nobody finds this fleet by the default address."""
    kinds = {process["kind"] for process in json.loads(said("ps", "--json").stdout)}
    assert kinds == {"gateway", "verifier", "lookup drafter"}
    assert [row.get("url") for row in json.loads(said("status", "--json").stdout)["processes"]][1:2] == [url]
    assert "tok/s" in said("top").stdout.splitlines()[0]
    assert len(said("ps").stdout.splitlines()) == 4
    logged = [json.loads(line) for line in said("logs", "--json").stdout.splitlines()]
    assert {line["process"] for line in logged} == {"gateway", "verifier", "lookup-drafter", "valkey"}
    assert said("status", "--up", "1").stderr.startswith("error: --up 1: no `up` of this user has its gateway there")


def said(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return launch_in(clean_environment(), *arguments)


def test_up_serves_several_models_with_the_same_drafters(tmp_path: Path) -> None:
    own = tiny_models.write(tmp_path / "own.gguf")
    twin = tmp_path / "twin.gguf"
    twin.symlink_to(own)
    log = tmp_path / "log"
    ports = ("--port", "0", "--redis-port", str(port := free_port()), "--parallel", "2", "--ctx", "512")
    targets = ("--target-model", str(twin), "--target-model", str(own), "--alias", "fast=own")
    with draftmesh(
        "up", *ports, *targets, "--draft-model", str(own), environment=clean_environment(), log=log
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("draftmesh is ready: "), log.read_text()[-2000:]
        request = process.stdout.readline()
        assert '"model": "twin"' in request
        assert process.stdout.readline() == "served: twin (also default), own (also fast)\n"
        url = f"redis://127.0.0.1:{port}/0"
        until(lambda: len([card for card in cards(url) if isinstance(card, DrafterCard)]) == 2, process, log)
        assert answer(request, speculative=True) == answer(request, speculative=True, model="fast") != ""
        drafter = next(c.id for c in cards(url) if isinstance(c, DrafterCard) and c.kind == "model")

        def both_are_helped() -> bool:
            found = helped(url, drafter)
            for model in {"twin", "own"} - found:  # a drafter may be too late for one short answer
                answer(request, speculative=True, model=model)
            return found == {"twin", "own"}

        until(both_are_helped, process, log)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()[-2000:]


def helped(url: str, drafter: str) -> set[str]:
    """The models of which the drafter guessed tokens."""
    verifiers = [card for card in cards(url) if isinstance(card, VerifierCard)]
    return {
        card.model for card in verifiers for counts in card.drafters if counts.drafter == drafter and counts.accepted
    }


def answer(request: str, **fields: object) -> str:
    """Send what the pasted curl line would, but for few tokens and the changed fields."""
    match = re.fullmatch(r"curl (\S+) -H 'Content-Type: application/json' -d '(.*)'\n", request)
    assert match
    body = json.dumps({**json.loads(match[2]), "max_tokens": 16, "temperature": 0, **fields}).encode()
    asked = urllib.request.Request(match[1], body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=PROCESS_S) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])
