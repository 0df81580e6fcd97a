"""The file for probes is there while a process serves, fresh for as long as its event loop turns, and gone after."""

import asyncio
import os
from pathlib import Path

import pytest

from shared.process.ready_file import ReadyFile


class Naps:
    """Lets the file's loop run for so many turns, and does something before each."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)

    async def __call__(self, _: float) -> None:
        if not self.steps:
            raise asyncio.CancelledError
        step = self.steps.pop(0)
        if callable(step):
            step()


async def run(file: ReadyFile) -> None:
    with pytest.raises(asyncio.CancelledError):
        await file.run()


async def test_it_is_made_and_touched_again(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    naps = Naps(lambda: os.utime(path, (0, 0)))
    await run(ReadyFile(str(path), naps))
    assert path.stat().st_mtime > 0


async def test_it_is_gone_once_no_more_work_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    naps = Naps()
    file = ReadyFile(str(path), naps)
    naps.steps = [file.end, None]
    await run(file)
    assert not path.exists()
    file.end()


async def test_a_place_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    file = ReadyFile(str(tmp_path / "gone/ready"), Naps(None, None))
    await run(file)
    file.end()


async def test_without_a_path_there_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = ReadyFile("", Naps(None))
    await run(file)
    file.end()
    assert os.listdir(tmp_path) == []
