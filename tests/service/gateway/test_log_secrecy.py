"""A gateway at the level `debug`, asked everything in every way: its log holds no word of it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from services.gateway.table import ROUTES
from services.launcher.fleet.stack import is_ready
from shared.model.llama.model import Model
from shared.process import api_keys
from tests.hostile import bodies
from tests.patience import PROCESS_S
from tests.ports import free_port
from tests.server import valkey_server
from tests.service.scripted import MODEL, card, speaking, stack

MARK = "xyzzyplugh"  # in everything that clients send
SAID = "quuxfrobnicate"  # what the model says


@asynccontextmanager
async def logged_gateway(url: str, keys: Path, log: Path) -> AsyncIterator[str]:
    port = free_port()
    command = [sys.executable, "-P", "-m", "services.gateway", "--redis", url, "--port", str(port)]
    command += ["--api-keys-file", str(keys), "--log-level", "debug"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file)  # noqa: ASYNC220 - it takes a millisecond
        try:
            address = f"http://127.0.0.1:{port}"
            async with asyncio.timeout(PROCESS_S), aiohttp.ClientSession() as http:
                while not await is_ready(http, address):  # noqa: ASYNC110 - it becomes ready in another process
                    await asyncio.sleep(0.05)
            yield address
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.timeout(600)
async def test_the_log_holds_nothing_of_what_was_asked_and_answered(
    vocabulary: bytes, model: Model, tmp_path: Path
) -> None:
    keys, log = tmp_path / "keys", tmp_path / "log"
    key = api_keys.add(keys, "alice")
    with valkey_server() as own:
        url = own.url
        async with stack(url, vocabulary, speaking(model, SAID)) as s, logged_gateway(url, keys, log) as address:
            headers = {"x-api-key": key, "x-request-id": "told-0"}
            requests = [
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": MARK}], "stream": True}),
                ("/v1/messages", {"messages": [{"role": "user", "content": MARK}], "max_tokens": 9}),
                ("/v1/responses", {"input": MARK, "instructions": MARK}),
                ("/v1/completions", {"prompt": MARK}),
                ("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": MARK}]}),
                ("/v1/chat/completions", {"messages": [{"role": MARK, "content": MARK}]}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": MARK}], "model": MARK}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": MARK}], "regex": f"({MARK}"}),
                ("/v1/messages", {"messages": [{"role": "user", "content": MARK}], "max_tokens": 9, "tools": [
                    {"type": f"web_search_{MARK}", "name": MARK}]}),
            ]  # fmt: skip
            async with aiohttp.ClientSession() as http:
                for path, body in requests:
                    async with http.post(address + path, json=body, headers=headers) as response:
                        assert response.status < 500
                        await response.read()
                for route in ROUTES:
                    for path in route.paths[:1] if route.method == "POST" else ():
                        for _, data in list(bodies.bodies())[::5]:
                            if len(data) < 100_000:
                                data = data.replace(b"Hi", MARK.encode()).replace(b'"x"', f'"{MARK}"'.encode())
                                await (await http.post(address + path, data=data, headers=headers)).read()
                await s.registry.beat(card())
                for wrong in (f"dm-{MARK}", f"Bearer {MARK}"):
                    await http.post(f"{address}/v1/messages", json={}, headers={"Authorization": wrong})
            for junk in (f"GET /{MARK} HTTP/9\r\n\r\n", f"{MARK}\r\n\r\n", f"GET / HTTP/1.1\r\n{MARK}\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
                writer.write(junk.encode())
                await reader.read()
                writer.close()
    text = log.read_text()
    assert text.count("request_finished") > len(requests)
    assert "told-0" in text
    for secret in (MARK, SAID, key, api_keys.digest(key).hex()):
        assert secret not in text, [line for line in text.splitlines() if secret in line][:3]
