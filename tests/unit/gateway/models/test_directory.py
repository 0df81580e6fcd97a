"""What the gateway does when it cannot load a model's vocabulary."""

import errno
from pathlib import Path
from typing import cast

import pytest

from services.gateway.errors import ApiError
from services.gateway.models.directory import ModelDirectory
from shared.fleet.registry import Registry


class Vocabularies:
    """A registry that has any vocabulary."""

    async def fetch_vocabulary(self, digest: str) -> bytes:
        return digest.encode()


async def test_a_disk_without_room_for_a_vocabulary_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ApiError, match="no room on disk") as caught:
        await ModelDirectory(cast(Registry, Vocabularies())).lexicon("abc")
    assert caught.value.status == 503
