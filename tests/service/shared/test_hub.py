"""Models come from a hub whole and once, whatever happens on the way, or one line says why not."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.errors import StartError
from shared.model import model_source
from shared.model.hub import HuggingFace
from tests.service.fake_hub import FakeHub, Served, model_bytes

SIZE = 3 << 20
BIG = model_bytes(SIZE)
SHARDS = {f"big/m-Q8_0-0000{number}-of-00003.gguf": model_bytes(70_000 + number, number) for number in (1, 2, 3)}
FILES = {"m-Q4_K_M.gguf": BIG, "README.md": b"words", "m-Q2_K.gguf": model_bytes(1000, 2), **SHARDS}


class Outcome(NamedTuple):
    """What a `resolve` came to: a path, or the line of its error; and what it said before."""

    path: Path
    error: str
    said: list[str]


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with FakeHub({"user/repo": dict(FILES)}) as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def resolve(spec: str, url: str, cache: Path, offline: bool = False) -> Outcome:
    said: list[str] = []
    client = HuggingFace(url, cache, offline, pause=lambda _: None)
    try:
        return Outcome(model_source.resolve(spec, "--draft-model", said.append, client), "", said)
    except StartError as error:
        return Outcome(Path(), str(error).removeprefix(f"--draft-model {spec}: "), said)


async def fetch(spec: str, hub: FakeHub, cache: Path, offline: bool = False) -> Outcome:
    return await asyncio.to_thread(resolve, spec, hub.url, cache, offline)


def files(cache: Path, pattern: str = "*") -> list[str]:
    return [path.name for path in cache.rglob(pattern) if path.is_file()]


async def test_a_model_is_fetched_once_and_checked(hub: FakeHub, cache: Path) -> None:
    first = await fetch("hf:user/repo", hub, cache)
    assert first.path.read_bytes() == BIG
    assert first.said[1] == "fetching m-Q4_K_M.gguf"
    assert hub.served == [Served("m-Q4_K_M.gguf", 0, SIZE)]
    again = await fetch("hf:user/repo", hub, cache)
    assert again.path == first.path
    assert again.said == ["looking up user/repo", "already there: m-Q4_K_M (3.1 MB)"]
    assert len(hub.served) == 1
    assert files(cache, "*.incomplete") == []


@pytest.mark.parametrize("spec", ["user/repo:Q2_K", "hf.co/user/repo:Q2_K", "https://huggingface.co/user/repo:q2_k"])
async def test_names_as_other_tools_write_them_are_understood(spec: str, hub: FakeHub, cache: Path) -> None:
    assert (await fetch(spec, hub, cache)).path.name == "m-Q2_K.gguf"


async def test_a_lost_connection_is_resumed_where_it_broke(hub: FakeHub, cache: Path) -> None:
    hub.cuts = [1_000_000, 500_000]
    assert (await fetch("hf:user/repo", hub, cache)).path.read_bytes() == BIG
    assert [served.start for served in hub.served] == [0, 1_000_000, 1_500_000]
    assert sum(served.sent for served in hub.served) == SIZE


async def test_a_later_try_goes_on_with_what_an_earlier_one_left(hub: FakeHub, cache: Path) -> None:
    hub.cuts = [1_000_000, 0, 0, 0, 0, 0]
    failed = await fetch("hf:user/repo", hub, cache)
    assert "gave up after 5 tries without new data" in failed.error
    hub.cuts = []
    done = await fetch("hf:user/repo", hub, cache)
    assert done.path.read_bytes() == BIG
    assert done.said[1] == "fetching m-Q4_K_M.gguf, 1.0 MB are here"
    assert sum(served.sent for served in hub.served) == SIZE


async def test_a_busy_server_is_asked_again(hub: FakeHub, cache: Path) -> None:
    hub.busy = 4
    assert (await fetch("hf:user/repo", hub, cache)).path.read_bytes() == BIG
    hub.busy = 5
    failed = await fetch("hf:user/repo:Q2_K", hub, cache)
    assert "gave up after 5 tries without new data (the server answers 503)" in failed.error


async def test_a_server_without_ranges_sends_it_all_again(hub: FakeHub, cache: Path) -> None:
    hub.cuts, hub.ranges = [1_000_000], False
    assert (await fetch("hf:user/repo", hub, cache)).path.read_bytes() == BIG
    assert [served.start for served in hub.served] == [0, 0]


async def test_another_file_than_the_hub_names_is_refused_and_removed(hub: FakeHub, cache: Path) -> None:
    hub.lies = {"m-Q4_K_M.gguf": BIG[:-1] + b"!"}
    failed = await fetch("hf:user/repo", hub, cache)
    assert "the bad copy is removed" in failed.error
    assert files(cache, "blobs/*") == []
    hub.lies = {}
    assert (await fetch("hf:user/repo", hub, cache)).path.read_bytes() == BIG


async def test_more_bytes_than_announced_are_refused(hub: FakeHub, cache: Path) -> None:
    hub.lies = {"m-Q4_K_M.gguf": BIG + b"more"}
    assert "more than the 3145728 bytes" in (await fetch("hf:user/repo", hub, cache)).error
    assert files(cache, "*.incomplete") == []


async def test_two_processes_that_want_the_same_file_fetch_it_once(hub: FakeHub, cache: Path) -> None:
    one, other = await asyncio.gather(fetch("hf:user/repo", hub, cache), fetch("hf:user/repo", hub, cache))
    assert one.path.read_bytes() == other.path.read_bytes() == BIG
    assert sum(served.sent for served in hub.served) == SIZE


async def test_all_shards_are_fetched_and_lie_beside_each_other(hub: FakeHub, cache: Path) -> None:
    done = await fetch("hf:user/repo:Q8_0", hub, cache)
    assert done.path.name == "m-Q8_0-00001-of-00003.gguf"
    assert {path.name: path.read_bytes() for path in done.path.parent.iterdir()} == {
        Path(path).name: data for path, data in SHARDS.items()
    }
    assert done.said[-1] == "big/m-Q8_0-00003-of-00003.gguf: 70.0 kB of 70.0 kB"


async def test_a_disk_without_room_is_told_before_anything_is_fetched(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=model_source.SPARE_BYTES + 210_005))
    failed = await fetch("hf:user/repo:Q8_0", hub, cache)
    assert failed.error == (
        f"210.0 kB must be downloaded; 268.6 MB is free at {cache}, of which 268.4 MB must stay free;"
        " free some space, or set HF_HOME to a folder on another disk"
    )
    assert hub.served == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=model_source.SPARE_BYTES + 210_006))
    assert (await fetch("hf:user/repo:Q8_0", hub, cache)).error == ""


async def test_what_is_here_already_needs_no_room(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.cuts = [1_000_000, 0, 0, 0, 0, 0]
    await fetch("hf:user/repo", hub, cache)
    usage = shutil.disk_usage(cache)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=model_source.SPARE_BYTES + SIZE - 1_000_001)
    )
    assert "2.1 MB of its 3.1 MB must be downloaded" in (await fetch("hf:user/repo", hub, cache)).error
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=model_source.SPARE_BYTES + SIZE - 1_000_000)
    )
    assert (await fetch("hf:user/repo", hub, cache)).error == ""


async def test_a_gated_repository_names_the_terms_and_the_token(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated = frozenset({"user/repo"})
    wanted = "gated: accept its terms at https://huggingface.co/user/repo, then set HF_TOKEN to a token of yours"
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert (await fetch("hf:user/repo", hub, cache)).error == wanted
    monkeypatch.setenv("HF_TOKEN", "another")
    assert (await fetch("hf:user/repo", hub, cache)).error == wanted
    assert files(cache, "*.incomplete") == []
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert (await fetch("hf:user/repo", hub, cache)).path.read_bytes() == BIG
    assert hub.leaks == []


async def test_an_unknown_repository_is_one_line(hub: FakeHub, cache: Path) -> None:
    assert (await fetch("hf:user/absent", hub, cache)).error == (
        "the hub has no such repository, or it is private (set HF_TOKEN to a token that may read it)"
    )


@pytest.mark.parametrize(
    "answer", [b"<html>", b"{}", b'[{"type": "file", "path": "m.gguf", "lfs": {"oid": "../../x"}}]']
)
async def test_an_answer_that_is_no_hub_s_is_one_line(answer: bytes, hub: FakeHub, cache: Path) -> None:
    hub.listing = answer
    assert "the hub cannot be reached (" in (await fetch("hf:user/repo", hub, cache)).error
    assert files(cache) == []


async def test_an_absent_quant_lists_those_there_are_with_their_sizes(hub: FakeHub, cache: Path) -> None:
    assert (await fetch("hf:user/repo:Q5_1", hub, cache)).error == (
        "no file matches Q5_1; the repository has Q2_K (1.0 kB), Q8_0 (210.0 kB), Q4_K_M (3.1 MB)"
    )


async def test_a_pinned_download_is_the_pinned_file(hub: FakeHub, cache: Path) -> None:
    failed = await fetch(f"hf:user/repo:Q2_K#sha256={'0' * 64}", hub, cache)
    assert "it is not the model that was pinned" in failed.error


async def test_a_hub_that_is_gone_does_not_matter_once_the_model_is_here(cache: Path) -> None:
    async with FakeHub({"user/repo": dict(FILES)}) as hub:
        there = await fetch("hf:user/repo:Q8_0", hub, cache)
    gone = await fetch("hf:user/repo:Q8_0", hub, cache)
    assert gone.path == there.path
    assert any("the hub cannot be reached" in line and "using what is on this machine" in line for line in gone.said)
    other = await fetch("hf:user/other", hub, cache)
    assert "the hub cannot be reached" in other.error
    assert "(nothing of the repository is)" in other.error
    assert "not on this machine (Q8_0 of the repository is)" in (await fetch("hf:user/repo:Q2_K", hub, cache)).error


async def test_offline_nothing_is_asked_of_the_hub(hub: FakeHub, cache: Path) -> None:
    refused = await fetch("hf:user/repo:Q2_K", hub, cache, offline=True)
    assert "offline" in refused.error
    assert "`draftmesh pull hf:user/repo:Q2_K` fetches it" in refused.error
    there = await fetch("hf:user/repo:Q2_K", hub, cache)
    asked = list(hub.requests)
    offline = await fetch("hf:user/repo:Q2_K", hub, cache, offline=True)
    assert offline.path == there.path
    assert hub.requests == asked
