"""The gateway loads a model's vocabulary without a disk, and says so when there is no room even in memory."""

import errno
import os
import sys
from pathlib import Path
from typing import cast

import pytest

from services.gateway.errors import ApiError
from services.gateway.models.directory import ModelDirectory
from shared.fleet.registry import Registry
from shared.model import model_source
from shared.model.vocabulary import vocabulary_gguf


class Vocabularies:
    """A registry with one vocabulary under every digest."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def fetch_vocabulary(self, digest: str) -> bytes:
        return self._data


def directory(data: bytes) -> ModelDirectory:
    return ModelDirectory(cast(Registry, Vocabularies(data)))


async def test_a_vocabulary_for_which_there_is_no_room_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", full, raising=False)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ApiError, match="no room for") as caught:
        await directory(b"GGUF").lexicon("abc")
    assert caught.value.status == 503


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files in memory")
async def test_a_vocabulary_needs_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    lexicon = await directory(vocabulary_gguf(model_source.resolve(model_source.DEFAULT))).lexicon("abc")
    assert lexicon.n_tokens == 49152
