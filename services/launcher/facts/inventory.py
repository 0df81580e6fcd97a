"""The models on this machine: in the hub's cache, in our own, in the wheel of the default model, in folders named."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.errors import StartError
from shared.folders import cache_folder
from shared.model import hub, model_source, quants

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo

HUB: Final = "hub"
WHEEL: Final = "wheel"
CACHE: Final = "cache"
FOLDER: Final = "folder"
BEGUN: Final = ".incomplete"  # the suffix of the hub tools' incomplete downloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A model, by the name that commands take for it; `files` in the order of shards, sizes in bytes."""

    name: str
    source: str
    files: Sequence[Path]
    size: int
    whole: bool


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    place: Path


def find(folders: Sequence[Path], hub_folder: Path | None = None) -> list[Found]:
    """All models by source and name, each once. Raises `StartError` if one of `folders` does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise StartError("--folder", folder, "no such folder")
    cache = hub.scan(hub_folder)
    found = [*_default(), *_in_folder(cache_folder(), CACHE), *(_on_hub(cache) if cache else ())]
    for folder in folders:
        found += _in_folder(folder, FOLDER)
    return list({model.name: model for model in found}.values())


def _default() -> Iterator[Found]:
    try:
        path = model_source.resolve(model_source.DEFAULT)
    except StartError:
        return
    yield Found(name=model_source.DEFAULT, source=WHEEL, files=(path,), size=path.stat().st_size, whole=True)


def _in_folder(folder: Path, source: str) -> Iterator[Found]:
    files = [_File(str(path), path.stat().st_size, path) for path in folder.rglob("*.gguf") if path.is_file()]
    for group in quants.groups(files):
        yield _found(group.files[0].path, source, group)


def _on_hub(cache: "HFCacheInfo") -> Iterator[Found]:
    for repository in sorted(cache.repos, key=lambda repository: repository.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            yield from _of_repository(repository)
    begun: dict[str, list[Path]] = {}
    for part in cache.incomplete_files:
        kind, _, name = part.file_path.parents[1].name.partition("--")
        if kind == "models":
            begun.setdefault(name.replace("--", "/"), []).append(part.file_path)
    for name, parts in sorted(begun.items()):
        size = sum(part.stat().st_size for part in parts)
        yield Found(name=f"hf:{name}", source=HUB, files=sorted(parts), size=size, whole=False)


def _of_repository(repository: "CachedRepoInfo") -> Iterator[Found]:
    """The models of the revision that an `hf:` name means offline."""
    revision = hub.branch(repository.revisions)
    files = [
        _File(file.file_path.relative_to(revision.snapshot_path).as_posix(), file.size_on_disk, file.file_path)
        for file in revision.files
    ]
    groups = quants.groups(files)
    for group in groups:
        unique = quants.matching(groups, group.quant) == [group]
        yield _found(f"hf:{repository.repo_id}:{group.quant if unique else group.name}", HUB, group)


def _found(name: str, source: str, group: quants.Group[_File]) -> Found:
    return Found(
        name=name,
        source=source,
        files=[file.place for file in group.files],
        size=group.size,
        whole=group.whole,
    )
