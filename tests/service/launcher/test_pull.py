"""`draftmesh pull`, `models` and `--offline` as they are typed, against a hub on this machine."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.launcher import cli
from shared.model import model_source
from shared.model.hub import HuggingFace
from tests import commands, tiny_gguf
from tests.commands import Command, Done
from tests.patience import PROCESS_S
from tests.service.fake_hub import FakeHub, Served, model_bytes

SIZE = 3 << 20


@dataclass(frozen=True)
class Machine:
    """A machine with a hub, and empty caches below `home`."""

    hub: FakeHub
    home: Path

    async def start(self, *arguments: str, **more: str) -> Command:
        """Start `draftmesh` with `arguments`, and `more` in its environment."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRAFTMESH_", "HF_"))}
        environment = {
            **clean,
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home / "hf"),
            "DRAFTMESH_CACHE": str(self.home / "draftmesh"),
            "COLUMNS": "200",
            **more,
        }
        return await commands.start(cli.main, arguments, environment)

    async def run(self, *arguments: str, **more: str) -> Done:
        return await (await self.start(*arguments, **more)).end()

    async def models(self, *arguments: str) -> dict[str, Any]:
        """What `models --json` lists, by name."""
        done = await self.run("models", "--json", *arguments)
        assert done.code == 0, done.errors
        return {model["name"]: model for model in json.loads(done.output)["models"]}

    def sizes(self, pattern: str) -> list[int]:
        """The sizes of the hub's files that match."""
        return [path.stat().st_size for path in (self.home / "hf").rglob(pattern)]

    def resolve(self, name: str) -> Path:
        """The file that `name` means without the hub."""
        return model_source.resolve(name, hub=HuggingFace(self.hub.url, self.home / "hf" / "hub", offline=True))


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    big = tiny_gguf.write(tmp_path / "big.gguf", [*tiny_gguf.TOKENS, b"pad"], layers=8).read_bytes()
    small = tiny_gguf.write(tmp_path / "small.gguf").read_bytes()
    other = tiny_gguf.write(tmp_path / "other.gguf", [b"other", *tiny_gguf.TOKENS[1:]]).read_bytes()
    repositories = {
        "user/blob": {"m-Q4_K_M.gguf": (small + model_bytes(SIZE))[:SIZE]},
        "user/tiny": {"tiny-F32.gguf": big, "tiny-Q8_0.gguf": small},
        "user/other": {"other-F16.gguf": other},
        "user/split": {f"s-Q8_0-0000{number}-of-00002.gguf": small for number in (1, 2)},
    }
    async with FakeHub(repositories) as hub:
        yield Machine(hub, tmp_path / "home")


async def test_paths_are_printed_and_the_rest_is_told_aside(machine: Machine) -> None:
    done = await machine.run("pull", "hf:user/tiny:Q8_0", "user/tiny:F32")
    assert done.code == 0, done.errors
    assert [Path(line).name for line in done.output.splitlines()] == ["tiny-Q8_0.gguf", "tiny-F32.gguf"]
    assert done.errors.splitlines()[:2] == ["looking up user/tiny", "fetching tiny-Q8_0.gguf"]
    again = await machine.run("pull", "hf:user/tiny:Q8_0")
    assert again.output == done.output.splitlines(keepends=True)[0]
    assert "already there: tiny-Q8_0" in again.errors


async def test_a_terminal_gets_a_bar(machine: Machine) -> None:
    done = await machine.run("pull", "hf:user/blob", FORCE_COLOR="1", TERM="xterm")
    assert done.code == 0
    assert "3.1/3.1 MB" in done.errors
    assert "1.9 MB of 3.1 MB" not in done.errors


async def test_one_that_fails_does_not_keep_the_others_away(machine: Machine) -> None:
    done = await machine.run("pull", "hf:user/absent", "hf:user/tiny:Q8_0")
    assert done.code == 1
    assert Path(done.output.strip()).name == "tiny-Q8_0.gguf"
    assert "error: MODEL hf:user/absent: the hub has no such repository" in done.errors


async def test_a_name_that_means_no_model_is_told_before_anything_is_fetched(machine: Machine) -> None:
    done = await machine.run("pull", "hf:user/tiny:Q8_0", "hf:nonsense")
    assert (done.code, done.output) == (2, "")
    assert done.errors.startswith("error: MODEL hf:nonsense: write hf:user/repo:QUANT")
    assert machine.hub.requests == []


async def test_ctrl_c_keeps_what_has_come_and_the_next_pull_goes_on(machine: Machine) -> None:
    machine.hub.stall_after = 2_000_000
    process = await machine.start("pull", "hf:user/blob")
    async with asyncio.timeout(PROCESS_S):
        await machine.hub.stalled.wait()
        # What the hub has sent may still be on its way into the file.
        while not re.search(rb"(1\.[1-9]|2\.0) MB of 3\.1 MB", line := await process.errors.readline()):
            assert line, "the pull has ended"
    process.send_signal(signal.SIGINT)
    stopped = await process.end()
    assert stopped.code == 130
    assert "the same command continues" in stopped.errors
    (kept,) = machine.sizes("*.incomplete")
    assert kept > 1_000_000
    machine.hub.stall_after = None
    done = await machine.run("pull", "hf:user/blob")
    assert done.code == 0
    assert machine.sizes("blobs/*") == [SIZE]
    assert machine.hub.served[1:] == [Served("m-Q4_K_M.gguf", kept, SIZE - kept)]
    assert machine.sizes("*.incomplete") == []


async def test_the_list_says_what_drafts_for_what(machine: Machine) -> None:
    await machine.run("pull", "hf:user/tiny:Q8_0", "hf:user/tiny:F32", "hf:user/other")
    folder = machine.home / "mine"
    folder.mkdir()
    mine = tiny_gguf.write(folder / "mine.gguf", output=True)
    (folder / "half-00001-of-00002.gguf").write_bytes(mine.read_bytes())
    listed = await machine.models("--folder", str(folder), "--folder", str(folder), "--parallel", "2")
    half = str(folder / "half-00001-of-00002.gguf")
    assert set(listed) == {"default", "hf:user/tiny:Q8_0", "hf:user/tiny:F32", "hf:user/other:F16", str(mine), half}
    assert listed[half]["problem"] == "some of its shards are missing"
    big = listed["hf:user/tiny:F32"]
    assert big["drafters"] == [str(mine), "hf:user/tiny:Q8_0"]
    assert big["facts"]["parameters"] == 8 * (32 * 32 + 32) + 9 * 32 + 32
    assert big["fits"]["cpu"] == {"whole": True, "layers": 9, "of": 9, "context": 2048}
    assert listed["hf:user/tiny:Q8_0"]["drafters"] == []
    told = await machine.run("models", "--folder", str(folder))
    assert f"possible drafters: {mine}, hf:user/tiny:Q8_0" in told.output
    assert "cpu whole, 2048 tokens" in told.output


async def test_every_name_in_the_list_is_one_that_commands_take(machine: Machine) -> None:
    await machine.run("pull", "hf:user/tiny:Q8_0", "hf:user/split:Q8_0", "hf:user/other")
    for name, model in (await machine.models()).items():
        assert str(machine.resolve(name)) == model["path"]


async def test_what_came_in_part_is_listed_as_such(machine: Machine) -> None:
    begun = machine.home / "hf" / "hub" / "models--user--blob" / "blobs" / f"{'0' * 64}.incomplete"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(bytes(1000))
    await machine.run("pull", "hf:user/split")
    machine.resolve("hf:user/split:Q8_0").with_name("s-Q8_0-00002-of-00002.gguf").unlink()
    listed = await machine.models()
    assert {name for name, model in listed.items() if not model["complete"]} == {"hf:user/blob", "hf:user/split:Q8_0"}
    assert listed["hf:user/blob"]["size"] == 1000
    assert all("continues the download" in model["problem"] for model in listed.values() if not model["complete"])
    removed = await machine.run("models", "rm", "--yes", "hf:user/blob", "hf:user/split:Q8_0")
    assert removed.code == 0
    assert machine.sizes("*.incomplete") == []
    assert set(await machine.models()) == {"default"}


async def test_removing_a_model_leaves_the_repository_s_others(machine: Machine) -> None:
    await machine.run("pull", "hf:user/tiny:Q8_0", "hf:user/tiny:F32")
    kept = await machine.run("models", "rm", "hf:user/tiny:Q8_0")
    assert kept.code != 0
    assert "Delete hf:user/tiny:Q8_0" in kept.errors
    assert "hf:user/tiny:Q8_0" in await machine.models()
    size = (await machine.models())["hf:user/tiny:Q8_0"]["size"]
    removed = await machine.run("models", "rm", "--yes", "hf:user/tiny:Q8_0")
    assert removed.code == 0
    assert "are free again" in removed.errors
    assert set(await machine.models()) == {"default", "hf:user/tiny:F32"}
    assert size not in machine.sizes("blobs/*")
    assert len(machine.sizes("blobs/*")) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("absent", "not a model here; there are: default"), ("default", "comes with the Python package")],
)
async def test_what_cannot_be_removed_is_one_line(name: str, words: str, machine: Machine) -> None:
    done = await machine.run("models", "rm", "--yes", name)
    assert done.code == 2
    assert done.errors.startswith(f"error: NAME {name}: {words}")


async def test_a_folder_that_is_none_is_refused(machine: Machine) -> None:
    done = await machine.run("models", "--folder", str(machine.home / "absent"))
    assert (done.code, done.errors.startswith("error: --folder ")) == (2, True)


@pytest.mark.parametrize("command", ["up", "doctor", "plan", "verifier", "drafter", "join"])
async def test_offline_no_command_asks_the_hub(command: str, machine: Machine, valkey_url: str) -> None:
    option = "--draft-model" if command in ("drafter", "join") else "--target-model"
    where = {"join": [valkey_url], "plan": ["--draft-model", "default"]}.get(command, [])
    spec = "hf:user/tiny:Q8_0"
    redis = valkey_url if command in ("verifier", "drafter") else ""
    done = await machine.run(command, *where, option, spec, "--offline", DRAFTMESH_REDIS=redis)
    assert done.code in (1, 2)
    assert f"{option} {spec}: offline" in done.output + done.errors
    assert "`draftmesh pull hf:user/tiny:Q8_0` fetches it" in done.output + done.errors
    assert machine.hub.requests == []


@pytest.mark.parametrize("variable", ["DRAFTMESH_OFFLINE", "HF_HUB_OFFLINE"])
async def test_the_environment_forbids_the_network_too(variable: str, machine: Machine) -> None:
    done = await machine.run("up", "--target-model", "hf:user/tiny:Q8_0", **{variable: "1"})
    assert (done.code, "offline, as --offline, DRAFTMESH_OFFLINE or HF_HUB_OFFLINE says" in done.errors) == (2, True)
    refused = await machine.run("pull", "hf:user/tiny:Q8_0", **{variable: "1"})
    assert (refused.code, refused.errors.startswith("error: pull --offline: models come over the network")) == (2, True)
    assert machine.hub.requests == []
